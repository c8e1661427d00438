"""Proof that drain, resume and shutdown lose nothing (docs/drain.md, "What was measured").

    python -m benchmarks.drain --short          two real workers, minutes
    python -m benchmarks.drain --long           50 cycles, 10,000 requests, 20 SIGTERMs
    python -m benchmarks.drain --upstream       upstream's worker under the same SIGTERMs
    python -m benchmarks.drain --stub           the harness itself, workers without an engine

Writes benchmarks/results/drain-<profile>.json and prints its table; exit code 1 when a phase that
must lose nothing did. ``--results FOLDER``: elsewhere, and the table as drain-<profile>.md too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.drain_proof import phases
from benchmarks.drain_proof.fleet import (
    Fleet,
    WorkerKind,
    real_kind,
    stub_kind,
    upstream_kind,
)
from benchmarks.drain_proof.load import Load, undisturbed
from benchmarks.drain_proof.phases import Phase
from benchmarks.drain_proof.plan import pool
from benchmarks.drain_proof.table import markdown
from tests.support import process_table
from tests.support.stack import Stack
from tests.support.tiny_model import write_tiny_model

RESULTS = Path(__file__).parent / "results"
GRACE_S = 0.5


class Profile(msgspec.Struct, frozen=True):
    """How much of everything. ``limit0_cycles``: cycles without migration, reported only."""

    pool: int
    clients: int
    cycles: int
    requests: int
    sigterms: int
    deaths: int
    limit0_cycles: int
    latency: int


PROFILES = {
    "short": Profile(60, 6, 6, 0, 2, 0, 3, 3),
    "long": Profile(400, 8, 50, 10_000, 20, 4, 25, 10),
    "stub": Profile(200, 8, 20, 2_000, 4, 0, 10, 5),
    "upstream": Profile(100, 8, 0, 0, 6, 2, 0, 0),
}


OVERRIDES = ("cycles", "requests", "sigterms", "deaths", "limit0_cycles", "latency")


async def prove(kind: WorkerKind, profile: Profile, folder: Path, seed: int) -> list[Phase]:
    requests = pool(seed, profile.pool)
    with Stack(folder, {"DYN_LOG": "warn"}) as stack:
        fleet = Fleet(stack, kind, GRACE_S)
        await fleet.start(2, migration_limit=3)
        port = fleet.frontend.http_port
        print("undisturbed run", flush=True)
        references = await undisturbed(port, kind.model, requests)

        def load() -> Load:
            return Load(fleet.frontend.http_port, kind.model, requests, references)

        done: list[Phase] = []

        def note(phase: Phase) -> None:
            done.append(phase)
            print(json.dumps(phases.to_json(phase), indent=1), flush=True)

        note(await phases.undisturbed_load(load(), profile.clients, 5.0))
        if kind.drains and profile.latency:
            note(await phases.completion_latency(fleet, kind.model, profile.latency))
        if kind.drains and profile.cycles:
            note(
                await phases.cycles(
                    "drain cycles, migration limit 3",
                    fleet,
                    load(),
                    profile.clients,
                    profile.cycles,
                    profile.requests,
                )
            )
        for blow, count in (
            (phases.SIGTERM, profile.sigterms),
            (phases.SCHEDULER_DEATH, profile.deaths),
        ):
            if count:
                note(await phases.endings(blow, fleet, load(), profile.clients, count))
        if profile.limit0_cycles:
            await fleet.restart_frontend(migration_limit=0)
            note(
                await phases.cycles(
                    "drain cycles, migration limit 0",
                    fleet,
                    load(),
                    profile.clients,
                    profile.limit0_cycles,
                )
            )
        return done


def report(profile: str, done: list[Phase]) -> dict[str, Any]:
    """What is written. Without migration the frontend's own race shows, and upstream's worker is
    there to be compared with: neither is judged."""
    judged = [phase for phase in done if "limit 0" not in phase.name and profile != "upstream"]
    return {
        "profile": profile,
        "machine": f"{platform.machine()}, {platform.python_version()}",
        "grace_s": GRACE_S,
        "passed": all(phase.passed() for phase in judged),
        "phases": [phases.to_json(phase) for phase in done],
    }


def kind_for(profile: str, scratch: Path, extra: list[str]) -> WorkerKind:
    if profile == "stub":
        return stub_kind(write_tiny_model(scratch / "model"))
    from tests.support.checkpoints import checkpoint

    if profile == "upstream":
        return upstream_kind(checkpoint("gdn"))
    return real_kind(checkpoint("gdn"), *extra)


def main() -> int:
    flags = argparse.ArgumentParser(
        description=__doc__,
        prog="benchmarks.drain",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen = flags.add_mutually_exclusive_group()
    for name in PROFILES:
        chosen.add_argument(f"--{name}", dest="profile", action="store_const", const=name)
    flags.add_argument("--seed", type=int, default=7)
    for field in OVERRIDES:
        flag = "--" + field.replace("_", "-")
        flags.add_argument(flag, type=int, help="instead of the profile's")
    flags.add_argument("--worker-arg", action="append", default=[], help="passed to every worker")
    flags.add_argument("--output", type=Path, help="default benchmarks/results/drain-PROFILE.json")
    flags.add_argument("--results", type=Path, help="a folder for the JSON and the table")
    options = flags.parse_args()
    name = options.profile or "short"
    profile = PROFILES[name]
    for field in OVERRIDES:
        if (value := getattr(options, field)) is not None:
            profile = msgspec.structs.replace(profile, **{field: value})
    process_table.become_subreaper()
    with tempfile.TemporaryDirectory(prefix="drain-proof-") as scratch:
        kind = kind_for(name, Path(scratch), options.worker_arg)
        done = asyncio.run(prove(kind, profile, Path(scratch), options.seed))
    written = report(name, done)
    output = options.output or (options.results or RESULTS) / f"drain-{name}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(written, indent=1) + "\n")
    table = markdown(written)
    if options.results is not None:
        output.with_suffix(".md").write_text(table)
    print(table)
    print(f"{'passed' if written['passed'] else 'FAILED'}: {output}", file=sys.stderr)
    return 0 if written["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
