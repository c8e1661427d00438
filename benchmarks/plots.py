"""``python -m benchmarks.plots``: the pictures of docs/performance.md, from benchmarks/results.

Reads relay.json and serving.json, and writes PNG files to docs/images. matplotlib is needed for
this alone; it is in requirements/dev.lock.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import msgspec

from benchmarks.relay_proof.table import Row as RelayRow
from benchmarks.relay_proof.table import by_load, is_prompt, is_saturated
from benchmarks.serving_proof.table import Row as ServingRow

matplotlib.use("Agg")
from matplotlib import pyplot

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
COLOURS = {
    "ours": "#2b6cb0",
    "upstream": "#dd6b20",
    "sglang": "#6b46c1",
    "bare": "#a0aec0",
    "bare-push": "#718096",
}
WIDTH_IN, HEIGHT_IN, DPI = 6.4, 3.4, 110


def read(name: str, kind: Any) -> list[Any]:
    found: list[Any] = msgspec.convert(json.loads((RESULTS / name).read_text())["rows"], list[kind])
    return found


def bars(
    axes: Any, groups: Sequence[str], series: dict[str, list[tuple[float, float, float]]]
) -> None:
    """``series``: per name one (median, lowest, highest) for each group."""
    width = 0.8 / len(series)
    for place, (name, values) in enumerate(series.items()):
        medians = [median for median, _, _ in values]
        errors = [
            [median - lowest for median, lowest, _ in values],
            [highest - median for median, _, highest in values],
        ]
        at = [group + (place - (len(series) - 1) / 2) * width for group in range(len(groups))]
        drawn = axes.bar(
            at, medians, width, yerr=errors, label=name, color=COLOURS[name], capsize=2
        )
        axes.bar_label(drawn, fmt="%.0f", fontsize=6, padding=2)
    axes.set_xticks(range(len(groups)), groups)
    axes.legend(fontsize=7)


def save(figure: Any, name: str) -> None:
    figure.set_size_inches(WIDTH_IN, HEIGHT_IN)
    figure.tight_layout()
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / name, dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)


def relay_streams(rows: Sequence[RelayRow]) -> None:
    loads = by_load(rows, is_saturated)
    figure, axes = pyplot.subplots()
    series = {
        name: [
            (
                of[name].cpu_us_per_chunk.median,
                of[name].cpu_us_per_chunk.lowest,
                of[name].cpu_us_per_chunk.highest,
            )
            for _, of in loads
        ]
        for name in ("ours", "upstream", "bare", "bare-push")
    }
    bars(axes, [f"{load.streams:,} x {load.chunks_each:,}" for load, _ in loads], series)
    axes.set_xlabel("streams x chunks of each")
    axes.set_ylabel("CPU per chunk, µs")
    axes.set_title("What relaying a chunk costs the worker process", fontsize=9)
    save(figure, "relay-streams.png")


def relay_prompts(rows: Sequence[RelayRow]) -> None:
    loads = by_load(rows, is_prompt)
    figure, axes = pyplot.subplots()
    for name in ("ours", "upstream", "bare", "bare-push"):
        axes.plot(
            [load.prompt_tokens for load, _ in loads],
            [of[name].cpu_us_per_chunk.median for _, of in loads],
            marker="o",
            color=COLOURS[name],
            label=name,
        )
    axes.set_xlabel("prompt tokens")
    axes.set_ylabel("CPU per request, µs")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7)
    axes.set_title("What a request of one chunk costs the worker process", fontsize=9)
    save(figure, "relay-prompts.png")


def serving(rows: Sequence[ServingRow]) -> None:
    names = list(dict.fromkeys(row.load.name for row in rows))
    figure, (rates, cost) = pyplot.subplots(1, 2)
    for axes, field, label in (
        (rates, "tokens_per_s", "tokens per second"),
        (cost, "cpu_us_per_token", "serving process's CPU per token, µs"),
    ):
        series = {}
        for system in dict.fromkeys(row.system for row in rows):
            mine = {row.load.name: row.values(field) for row in rows if row.system == system}
            series[system] = [
                (statistics.median(mine[name]), min(mine[name]), max(mine[name])) for name in names
            ]
        bars(axes, [name.replace(" ", "\n") for name in names], series)
        axes.set_ylabel(label, fontsize=8)
        axes.tick_params(labelsize=7)
    save(figure, "serving-cpu.png")


def main() -> int:
    relay = read("relay.json", RelayRow)
    relay_streams(relay)
    relay_prompts(relay)
    serving(read("serving.json", ServingRow))
    return 0


if __name__ == "__main__":
    sys.exit(main())
