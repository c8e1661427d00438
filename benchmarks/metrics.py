"""What a scrape every second costs while 256 streams run, in one run of one worker.

    python -m benchmarks.metrics [--streams 256] [--window 5] [--blocks 14]

takes under six minutes and wants a quiet machine: blocks of four windows, two of them scraped, of
one load that is never interrupted. In every second block /metrics is fetched five times per second
instead of once, and a fifth of what that costs is counted: the noise stays what it is. A real
engine (the demo's dense model on the CPU platform) with ``--enable-metrics``; the client counts
tokens; the way leads through the listener. Three answers, from the noisiest to the surest:

1. tokens per second of scraped windows against the others, a ratio per block;
2. CPU per token of all the worker's processes, likewise: on a machine whose cores are all busy the
   throughput can fall by no more than that;
3. CPU of one scrape, measured without a load: a scrape per second takes that share of the cores.

Writes metrics.json and metrics.md of benchmarks/results, or of ``--results FOLDER``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import machine
from benchmarks.scrape_cost import verdict
from benchmarks.scrape_cost.verdict import Block, Interval
from benchmarks.scrape_cost.windows import Watch, Window
from benchmarks.streams.load import Load, running_worker

RESULTS = Path(__file__).parent / "results"
GOAL_PERCENT = 2.0
SETTLE_S = 10.0
IDLE_S = 15.0
TOKENS = 192


class Found(msgspec.Struct, frozen=True):
    blocks: list[list[Window]]
    series: int
    failures: int
    idle_ms: float
    idle_scrapes: int

    def throughput(self, dose: int) -> Interval:
        return verdict.interval(self.of(dose), verdict.throughput_cost)

    def cpu(self, dose: int) -> Interval:
        return verdict.interval(self.of(dose), verdict.cpu_cost)

    def of(self, dose: int) -> list[list[Window]]:
        return [block for block in self.blocks if verdict.dose_of(block) == dose]

    @property
    def share_percent(self) -> float:
        """Of all cores that the worker may use, for one scrape per second."""
        return self.idle_ms / 1000 / cores() * 100


def cores() -> int:
    return len(os.sched_getaffinity(0))


async def run(options: argparse.Namespace) -> Found:
    flags = ["--enable-metrics", "--max-running-requests", str(options.streams)]
    flags += ["--max-total-tokens", str(options.streams * (TOKENS + 64)), "--disable-radix-cache"]
    async with running_worker(flags) as (worker, client):
        load = Load(client, TOKENS)
        load.open(options.streams)
        await worker.until("requests_in_flight", options.streams, 60.0)
        await asyncio.sleep(SETTLE_S)
        watch = Watch(worker, load)
        blocks = []
        for number in range(options.blocks):
            blocks.append(await watch.windows(verdict.order_of(number), options.window))
            print(line_of(blocks[-1]), flush=True)
        series = len(list((await worker.scrape()).samples))
        await load.close()
        await asyncio.sleep(SETTLE_S / 2)
        idle_ms, idle_scrapes = await watch.idle_cpu_ms(IDLE_S)
    return Found(blocks, series, load.failures, idle_ms, idle_scrapes)


def line_of(block: Block) -> str:
    rates = " ".join(f"{one.dose}/s {one.tokens_per_s:.0f}" for one in block)
    return (
        f"{rates} tok/s: throughput {verdict.throughput_cost(block):+.2f} %, "
        f"CPU per token {verdict.cpu_cost(block):+.2f} %"
    )


def page(options: argparse.Namespace, found: Found, known: dict[str, Any]) -> str:
    off = [one for block in found.blocks for one in block if not one.dose]
    took_ms = [ms for block in found.blocks for one in block for ms in one.scrapes_ms]
    low, high = verdict.DOSES
    share = "met" if found.share_percent < GOAL_PERCENT else "missed"
    return f"""# Cost of a scrape

{machine.sentence(known)} Made by `{command(options)}`:
{options.streams} streams of the demo's dense model without a frontend, {found.series} series;
{options.blocks} blocks of four windows of {options.window:g} s of one load, two of them scraped,
in every second block {high} times per second and the effect divided by {high}. Medians over the
blocks with their 95 % intervals (bootstrap); the goal is under {GOAL_PERCENT:g} %.

| what one scrape per second costs | scraped {low}/s | scraped {high}/s, a {high}th of it |
| --- | --- | --- |
| throughput, % | {_judged(found.throughput(low))} | {_judged(found.throughput(high))} |
| CPU per token, all processes, % | {_judged(found.cpu(low))} | {_judged(found.cpu(high))} |

- One scrape of the idle worker takes {found.idle_ms:.1f} ms of CPU (mean of {found.idle_scrapes},
  all its processes): one per second is {found.share_percent:.2f} % of {cores()} cores, {share}.
- Not scraped, the median is {_median(off):.0f} tokens/s with {_busy(off):.2f} cores busy in the
  worker. A scrape under that load takes {statistics.median(took_ms):.0f} ms (median).
- Failed streams: {found.failures}.

Met and missed mean that the whole interval is on that side of the goal; fewer than
{verdict.ENOUGH} blocks of a kind decide nothing.
"""


def _judged(cost: Interval) -> str:
    return f"{cost.text()}, {verdict.judged(cost, GOAL_PERCENT)}"


def _median(windows: Sequence[Window]) -> float:
    return statistics.median(one.tokens_per_s for one in windows)


def _busy(windows: Sequence[Window]) -> float:
    return statistics.median(sum(one.cpu_s.values()) / one.seconds for one in windows)


def _by_dose(cost: Callable[[int], Interval]) -> dict[int, Any]:
    return {dose: msgspec.to_builtins(cost(dose)) for dose in verdict.DOSES}


def command(options: argparse.Namespace) -> str:
    return (
        f"python -m benchmarks.metrics --streams {options.streams} --window {options.window:g} "
        f"--blocks {options.blocks}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.metrics")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--window", type=float, default=5.0, help="seconds")
    parser.add_argument("--blocks", type=int, default=14)
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.blocks < len(verdict.DOSES):
        parser.error(f"--blocks must be at least {len(verdict.DOSES)}, one of each kind")
    known = machine.facts()
    found = asyncio.run(run(options))
    result = {
        "command": command(options),
        "machine": known,
        "throughput_cost_percent": _by_dose(found.throughput),
        "cpu_per_token_cost_percent": _by_dose(found.cpu),
        "scrape_share_percent": found.share_percent,
        **msgspec.to_builtins(found),
    }
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "metrics.json").write_text(json.dumps(result, indent=1) + "\n")
    text = page(options, found, known)
    (options.results / "metrics.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
