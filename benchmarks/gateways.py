"""Where the CPU of a chunk goes with one relaying process and with several.

    python -m benchmarks.gateways [--counts 1,2] [--streams 128] [--window 10] [--repeats 5]
                                  [--results FOLDER]

The demo's dense model on the CPU platform, no frontend; a runtime's client reads all streams. Per
count one worker, one after the other, and of each its processes' CPU microseconds per token.
Engine, gateways and client share the machine's cores: where they are few, this shows how the work
divides, not how many more chunks a machine with idle cores would see (`gpu_serving` has that
question). Writes gateways.json and gateways.md of ``--results``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from benchmarks import machine
from benchmarks.streams.load import Load, cpu_seconds, resident_bytes, running_worker
from tests.support.wait import wait_until_async

RESULTS = Path(__file__).parent / "results"
TOKENS = 192
SETTLE_S = 8.0
ROLES = ("main", "gateways", "scheduler", "detokenizer", "listener")
MIB = 1 << 20


class Window(msgspec.Struct, frozen=True):
    """One stretch of the load. ``cpu_us``: per token, by role, gateways added up."""

    tokens_per_s: float
    cpu_us: Mapping[str, float]
    busiest_us: float


class Row(msgspec.Struct, frozen=True):
    """``busiest_us``: of the relaying process that works most, which ends first. ``resident_mib``:
    of all relaying processes."""

    gateways: int
    tokens_per_s: float
    cpu_us: Mapping[str, float]
    busiest_us: float
    resident_mib: float
    failures: int


def gateway_pids(pid: int) -> tuple[int, ...]:
    """Of a worker that serves through gateways; empty for one that serves by itself."""
    found = psutil.Process(pid).children()
    return tuple(one.pid for one in found if "tokenizer_worker" in " ".join(one.cmdline()))


def roles(pid: int) -> dict[str, list[int]]:
    """Process ids of a worker by what they do; one that serves by itself is its own gateway."""
    found: dict[str, list[int]] = {role: [] for role in ROLES}
    for child in psutil.Process(pid).children(recursive=True):
        words = " ".join(child.cmdline())
        for role, word in (
            ("gateways", "tokenizer_worker"),
            ("scheduler", "scheduler"),
            ("detokenizer", "detokenizer"),
            ("listener", "system.child"),
        ):
            if word in words:
                found[role].append(child.pid)
                break
    found["main" if found["gateways"] else "gateways"].append(pid)
    return found


async def measure(load: Load, processes: Mapping[str, Sequence[int]], seconds: float) -> Window:
    every = [pid for pids in processes.values() for pid in pids]
    before, tokens = {pid: cpu_seconds(pid) for pid in every}, load.received
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await asyncio.sleep(seconds)
    took_s, seen = loop.time() - began_s, load.received - tokens
    spent_us = {pid: (cpu_seconds(pid) - before[pid]) * 1e6 / seen for pid in every}
    return Window(
        tokens_per_s=seen / took_s,
        cpu_us={role: sum(spent_us[pid] for pid in pids) for role, pids in processes.items()},
        busiest_us=max(spent_us[pid] for pid in processes["gateways"]),
    )


async def run(count: int, options: argparse.Namespace) -> Row:
    flags = ["--gateway-workers", str(count), "--max-running-requests", str(options.streams)]
    flags += ["--max-total-tokens", str(options.streams * (TOKENS + 64)), "--disable-radix-cache"]
    async with running_worker(flags) as (worker, client):
        await wait_until_async(
            lambda: len(client.instance_ids()) == count, "the client knows every instance"
        )
        load = Load(client, TOKENS)
        load.open(options.streams)
        await asyncio.sleep(SETTLE_S)
        processes = roles(worker.pid)
        if len(processes["gateways"]) != count:
            raise RuntimeError(f"{count} relaying processes expected: {processes}")
        windows = [await measure(load, processes, options.window) for _ in range(options.repeats)]
        resident_mib = sum(resident_bytes(pid) for pid in processes["gateways"]) / MIB
        await load.close()
    return Row(
        gateways=count,
        tokens_per_s=statistics.median(one.tokens_per_s for one in windows),
        cpu_us={role: statistics.median(one.cpu_us[role] for one in windows) for role in ROLES},
        busiest_us=statistics.median(one.busiest_us for one in windows),
        resident_mib=resident_mib,
        failures=load.failures,
    )


def page(rows: Sequence[Row], options: argparse.Namespace, known: dict[str, Any]) -> str:
    lines = [
        f"| {row.gateways} | {row.tokens_per_s:.0f} | {row.busiest_us:.0f} | "
        + " | ".join(f"{row.cpu_us[role]:.0f}" for role in ROLES)
        + f" | {row.resident_mib:.0f} | {row.failures} |"
        for row in rows
    ]
    return f"""# Several relaying processes for one engine

{machine.sentence(known)} Made by `python -m benchmarks.gateways --counts {options.counts} \
--streams {options.streams} --window {options.window:g} --repeats {options.repeats}`: medians of \
{options.repeats} windows of {options.window:g} s. CPU microseconds per token; "busiest" is the \
relaying process that works most, so a million divided by it is where relaying would end.

| gateways | tokens/s | busiest | {" | ".join(ROLES)} | MiB, relaying | failed |
| --- | --- | --- | {" | ".join("---" for _ in ROLES)} | --- | --- |
{chr(10).join(lines)}
"""


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--counts", default="1,2")
    flags.add_argument("--streams", type=int, default=128)
    flags.add_argument("--window", type=float, default=10.0)
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument("--results", type=Path, default=RESULTS)
    options = flags.parse_args(argv)
    known = machine.facts()
    rows = [asyncio.run(run(int(count), options)) for count in options.counts.split(",")]
    options.results.mkdir(parents=True, exist_ok=True)
    found = {"machine": known, "rows": msgspec.to_builtins(rows)}
    (options.results / "gateways.json").write_text(json.dumps(found, indent=1) + "\n")
    text = page(rows, options, known)
    (options.results / "gateways.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
