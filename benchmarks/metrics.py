"""What a scrape costs while 256 streams run: on and off windows in turn, in one run.

    python -m benchmarks.metrics [--streams 256] [--window 8] [--pairs 10]

A real engine (the demo's dense model on the CPU platform) with ``--enable-metrics``; the client
counts tokens. In an on-window ``/metrics`` is fetched every second through the listener. Each pair
of windows gives one ratio of token rates, and their order alternates, for the engine's rate drifts
by more than a scrape costs; windows of 2 s proved too short for it. Writes metrics.json and
metrics.md of benchmarks/results.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.streams.load import Load, Worker, cpu_seconds, running_worker

RESULTS = Path(__file__).parent / "results"
GOAL_PERCENT = 2.0
SCRAPE_EVERY_S = 1.0
SETTLE_S = 8.0
TOKENS = 192


class Window(msgspec.Struct, frozen=True):
    """One stretch of time; ``cpu_s`` of the worker process alone, per second."""

    scraped: bool
    tokens_per_s: float
    worker_cpu_s: float
    scrapes_ms: list[float]


async def scrape_every_second(worker: Worker, took_ms: list[float]) -> None:
    while True:
        began_s = time.monotonic()
        await worker.get("/metrics")
        took_ms.append(1000 * (time.monotonic() - began_s))
        await asyncio.sleep(max(0.0, SCRAPE_EVERY_S - (time.monotonic() - began_s)))


async def measure(load: Load, worker: Worker, scraped: bool, window_s: float) -> Window:
    took_ms: list[float] = []
    scraping = asyncio.create_task(scrape_every_second(worker, took_ms)) if scraped else None
    cpu_s, began_s = cpu_seconds(worker.pid), time.monotonic()
    tokens_per_s = await load.rate(window_s)
    window = Window(
        scraped=scraped,
        tokens_per_s=tokens_per_s,
        worker_cpu_s=(cpu_seconds(worker.pid) - cpu_s) / (time.monotonic() - began_s),
        scrapes_ms=took_ms,
    )
    if scraping is not None:
        scraping.cancel()
    return window


async def run(options: argparse.Namespace) -> dict[str, Any]:
    flags = ["--enable-metrics", "--max-running-requests", str(options.streams)]
    flags += ["--max-total-tokens", str(options.streams * (TOKENS + 64)), "--disable-radix-cache"]
    async with running_worker(flags) as (worker, client):
        load = Load(client, TOKENS)
        load.open(options.streams)
        await worker.until("requests_in_flight", options.streams, 60.0)
        await asyncio.sleep(SETTLE_S)
        pairs: list[tuple[Window, Window]] = []
        for number in range(options.pairs):
            order = (True, False) if number % 2 else (False, True)
            first, second = [await measure(load, worker, on, options.window) for on in order]
            pairs.append((first, second) if first.scraped else (second, first))
            print(line_of(*pairs[-1]), flush=True)
        series = len(list((await worker.scrape()).samples))
        failures = load.failures
        await load.close()
    return {"pairs": pairs, "series": series, "failures": failures}


def line_of(on: Window, off: Window) -> str:
    return (
        f"on {on.tokens_per_s:.0f} tok/s, off {off.tokens_per_s:.0f} tok/s, "
        f"cost {cost_percent((on, off)):+.1f} %, "
        f"scrape {statistics.median(on.scrapes_ms):.0f} ms"
    )


def cost_percent(pair: tuple[Window, Window]) -> float:
    on, off = pair
    return 100 * (1 - on.tokens_per_s / off.tokens_per_s)


def spread(values: list[float]) -> dict[str, float]:
    """Quartiles and extremes."""
    low, median, high = statistics.quantiles(values, n=4)
    return {"min": min(values), "q1": low, "median": median, "q3": high, "max": max(values)}


def summary(found: dict[str, Any]) -> dict[str, dict[str, float]]:
    pairs: list[tuple[Window, Window]] = found["pairs"]
    return {
        "tokens_per_s_off": spread([off.tokens_per_s for _, off in pairs]),
        "tokens_per_s_on": spread([on.tokens_per_s for on, _ in pairs]),
        "cost_percent": spread([cost_percent(pair) for pair in pairs]),
        "worker_cpu_percent_of_a_core": spread(
            [100 * (on.worker_cpu_s - off.worker_cpu_s) for on, off in pairs]
        ),
        "scrape_ms": spread([ms for on, _ in pairs for ms in on.scrapes_ms]),
    }


NAMES = {
    "tokens_per_s_off": "tokens/s, not scraped",
    "tokens_per_s_on": "tokens/s, scraped",
    "cost_percent": "cost of a pair, % of throughput",
    "worker_cpu_percent_of_a_core": "more CPU of the worker process, % of a core",
    "scrape_ms": "one scrape, ms",
}


def page(
    options: argparse.Namespace, found: dict[str, Any], numbers: dict[str, dict[str, float]]
) -> str:
    rows = "\n".join(
        f"| {NAMES[name]} | " + " | ".join(f"{value:.1f}" for value in values.values()) + " |"
        for name, values in numbers.items()
    )
    costs = [cost_percent(pair) for pair in found["pairs"]]
    error = statistics.stdev(costs) / len(costs) ** 0.5
    if error > GOAL_PERCENT:
        verdict = "not decided by this run: the engine's rate varied more than that between windows"
    else:
        verdict = "met" if numbers["cost_percent"]["median"] < GOAL_PERCENT else "missed"
    return f"""# Cost of a scrape

`{command(options)}`
on {machine()}.
{options.streams} streams of the demo's dense model without a frontend, {found["series"]} series;
{options.pairs} pairs of windows of {options.window:g} s, scraped every second or not, the order in
turn.

| | lowest | quartile | median | quartile | highest |
| --- | --- | --- | --- | --- | --- |
{rows}

Mean cost {statistics.mean(costs):+.2f} % with a standard error of {error:.2f} %. The goal, a median
under {GOAL_PERCENT:g} %, is {verdict}.
Failed streams: {found["failures"]}.
"""


def command(options: argparse.Namespace) -> str:
    return (
        f"python -m benchmarks.metrics --streams {options.streams} --window {options.window:g} "
        f"--pairs {options.pairs}"
    )


def machine() -> str:
    versions = ", ".join(f"{name} {version(name)}" for name in ("sglang", "ai-dynamo"))
    return (
        f"{len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}, {versions}, "
        f"{time.strftime('%Y-%m-%d')}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.metrics")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--window", type=float, default=8.0)
    parser.add_argument("--pairs", type=int, default=10)
    options = parser.parse_args()
    found = asyncio.run(run(options))
    numbers = summary(found)
    result = {
        "command": command(options),
        "machine": machine(),
        "summary": numbers,
        "pairs": [
            {"on": msgspec.to_builtins(on), "off": msgspec.to_builtins(off)}
            for on, off in found["pairs"]
        ],
    }
    (RESULTS / "metrics.json").write_text(json.dumps(result, indent=2) + "\n")
    text = page(options, found, numbers)
    (RESULTS / "metrics.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
