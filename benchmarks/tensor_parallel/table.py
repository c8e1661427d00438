"""The rows as Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.tensor_parallel.agreement import TOLERANCE_NATS

HEAD = (
    "| row | ranks of the report | stamp d/p/v | kernels d/p/v | registered after | "
    "greedy answers against one GPU | SIGTERM |\n| --- | --- | --- | --- | --- | --- | --- |"
)
_PHASES = ("decode", "prefill", "verify")


def render(rows: dict[str, Any]) -> str:
    lines = [
        "# The worker on two GPUs",
        "",
        "Answers agree when they part, if at all, only where the reference's two best tokens are "
        f"within {TOLERANCE_NATS} nats of each other.",
        "",
        HEAD,
        *(_line(name, row) for name, row in rows.items()),
        "",
    ]
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any]) -> str:
    flags = f"`{row['flags']}`" if row["flags"] else "one GPU"
    cells = [f"{name}: {flags}"]
    runners = row.get("runners") or []
    cells.append("; ".join(f"{one['runner']} {one['ranks']}" for one in runners))
    cells.append("; ".join(_phases(one.get("stamp")) for one in runners))
    cells.append("; ".join(_phases(one.get("kernels")) for one in runners))
    cells.append(f"{row['registered_after_s']} s" if "registered_after_s" in row else "")
    cells.append(_answers(row))
    ended = row.get("sigterm")
    cells.append(f"exit {ended['exit_code']} after {ended['seconds']} s" if ended else "")
    return "| " + " | ".join(cells) + " |"


def _phases(values: dict[str, str] | None) -> str:
    return "none" if not values else "/".join(str(values.get(phase, "?")) for phase in _PHASES)


def _answers(row: dict[str, Any]) -> str:
    if row["failed"]:
        return f"FAILED: {row['failed'].splitlines()[0][:160]}"
    found = row.get("agreement")
    if not found:
        return "reference"
    return "; ".join(f"rank {rank}: {_compared(one)}" for rank, one in found.items())


def _compared(one: dict[str, Any]) -> str:
    parted = one["gaps_where_parted_nats"]
    return (
        f"{one['identical']} of {one['prompts']} identical, "
        f"{one['common_tokens']} of {one['tokens']} tokens before they part, "
        f"log-probabilities within {one['largest_difference_nats']}"
        + (f", parted at gaps {parted}" if parted else "")
    )
