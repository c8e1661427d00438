"""What ``make bench`` measures, in this order, and how long each may take."""

from __future__ import annotations

from importlib.util import find_spec

import msgspec


class Step(msgspec.Struct, frozen=True):
    """One module of benchmarks/.

    ``{results}`` in ``arguments`` and ``smoke`` (the shortest run): the folder for its files.
    ``limit_s``: it is ended then; about one and a half times what a quiet machine of two cores
    needs. ``table``: the file that is shown at the end.
    """

    module: str
    arguments: tuple[str, ...]
    smoke: tuple[str, ...] | None
    limit_s: float
    table: str | None = None


RESULTS = ("--results", "{results}")
STEPS = (
    Step(
        "relay",
        ("--seconds", "190", "--write", *RESULTS),
        ("--part", "prompts", "--repeats", "1", "--write", *RESULTS),
        330.0,
        "relay.md",
    ),
    Step(
        "serving",
        ("--cycles", "2", "--rounds", "2", "--write", *RESULTS),
        ("--cycles", "1", "--rounds", "1", "--write", *RESULTS),
        290.0,
        "serving.md",
    ),
    Step(
        "startup",
        ("--repeats", "2", *RESULTS),
        ("--repeats", "1", *RESULTS),
        200.0,
        "startup.md",
    ),
    Step(
        "drain",
        ("--short", *RESULTS),
        (
            *("--short", "--cycles", "1", "--sigterms", "1", "--limit0-cycles", "1"),
            *("--latency", "1", *RESULTS),
        ),
        240.0,
        "drain-short.md",
    ),
    Step(
        "metrics",
        ("--blocks", "4", "--window", "3", *RESULTS),
        ("--streams", "16", "--blocks", "2", "--window", "2", *RESULTS),
        200.0,
        "metrics.md",
    ),
    Step(
        "memory",
        ("--seconds", "10", *RESULTS),
        ("--streams", "300", "--seconds", "4", "--repeats", "2", *RESULTS),
        180.0,
        "memory.md",
    ),
    Step(
        "embeddings",
        ("--rounds", "5", *RESULTS),
        ("--rounds", "1", *RESULTS),
        240.0,
        "embeddings.md",
    ),
    Step(
        "gateways",
        ("--repeats", "5", "--window", "5", *RESULTS),
        ("--repeats", "1", "--window", "2", "--streams", "16", *RESULTS),
        180.0,
        "gateways.md",
    ),
    Step("plots", (), None, 60.0),
)


def present(steps: tuple[Step, ...] = STEPS) -> tuple[Step, ...]:
    return tuple(step for step in steps if find_spec(f"benchmarks.{step.module}") is not None)
