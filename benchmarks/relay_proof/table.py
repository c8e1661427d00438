"""The relay's rows and their page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from benchmarks.machine import sentence
from benchmarks.relay_proof.measure import Load, Sample, Spread, spread


class Row(msgspec.Struct, frozen=True):
    handler: str
    load: Load
    repeats: int
    cpu_us_per_chunk: Spread
    gap_us: Spread
    latency_p50_us: Spread | None = None
    latency_p99_us: Spread | None = None


def row_of(handler: str, load: Load, samples: Sequence[Sample]) -> Row:
    def column(read: Callable[[Sample], float | None]) -> Spread | None:
        values = [value for sample in samples if (value := read(sample)) is not None]
        return spread(values) if values else None

    return Row(
        handler,
        load,
        len(samples),
        spread([sample.cpu_us_per_chunk for sample in samples]),
        spread([sample.gap_us for sample in samples]),
        column(lambda sample: sample.latency_p50_us),
        column(lambda sample: sample.latency_p99_us),
    )


def cell(value: Spread | None, digits: int = 1) -> str:
    if value is None:
        return ""
    return f"{value.median:,.{digits}f} ({value.lowest:,.{digits}f}–{value.highest:,.{digits}f})"


def by_load(
    rows: Sequence[Row], wanted: Callable[[Load], bool]
) -> list[tuple[Load, dict[str, Row]]]:
    groups: dict[Load, dict[str, Row]] = {}
    for row in rows:
        if wanted(row.load):
            groups.setdefault(row.load, {})[row.handler] = row
    return list(groups.items())


def is_paced(load: Load) -> bool:
    return load.period_ms > 0


def is_prompt(load: Load) -> bool:
    return load.chunks_each == 1


def is_saturated(load: Load) -> bool:
    return not is_paced(load) and not is_prompt(load)


def ratio(handlers: dict[str, Row]) -> str:
    ours, upstream = handlers["ours"], handlers["upstream"]
    return f"{ours.cpu_us_per_chunk.median / upstream.cpu_us_per_chunk.median:.2f}"


def markdown(machine: dict[str, Any], rows: Sequence[Row]) -> str:
    counts = sorted({row.repeats for row in rows})
    repeats = " to ".join(str(count) for count in counts)
    lines = [
        "# Relay cost",
        "",
        f"{sentence(machine)} `python -m benchmarks.relay --write`; median (lowest–highest) of "
        f"{repeats} repeats, the handlers in turn.",
        "",
        "CPU microseconds of the whole worker process per chunk. `bare`: a generator that the "
        "runtime pulls; `bare push`: the same pushed from the event loop.",
        "",
        "## As fast as the reader takes them",
        "",
        *cost_lines(rows, "streams x chunks", is_saturated),
        "",
        "## One request",
        "",
        "Requests of one chunk, 128 at once: CPU microseconds per request.",
        "",
        *cost_lines(rows, "prompt tokens", is_prompt),
        *paced_lines(rows),
    ]
    return "\n".join(lines) + "\n"


def cost_lines(rows: Sequence[Row], heading: str, wanted: Callable[[Load], bool]) -> list[str]:
    lines = [
        f"| {heading} | ours | upstream | ours / upstream | bare | bare push |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for load, of in by_load(rows, wanted):
        cells = [cell(of[name].cpu_us_per_chunk) for name in ("ours", "upstream")]
        floors = [cell(of[name].cpu_us_per_chunk) for name in ("bare", "bare-push")]
        shown = (
            f"{load.prompt_tokens:,}"
            if is_prompt(load)
            else f"{load.streams:,} x {load.chunks_each:,}"
        )
        lines.append(
            f"| {shown} | {cells[0]} | {cells[1]} | {ratio(of)} | {floors[0]} | {floors[1]} |"
        )
    return lines


def paced_lines(rows: Sequence[Row]) -> list[str]:
    lines = [
        "",
        "## At a decode batch's pace",
        "",
        "Latency: microseconds from the making of a chunk until a Python client has it, all "
        "streams served by one client process, whose own time is in it.",
        "",
        "| streams, period | handler | CPU per chunk | latency p50 | latency p99 |",
        "| --- | --- | --- | --- | --- |",
    ]
    for load, of in by_load(rows, is_paced):
        for name, row in of.items():
            shown = f"{name} ({ratio(of)} of upstream)" if name == "ours" else name
            lines.append(
                f"| {load.streams:,}, {load.period_ms:g} ms | {shown} "
                f"| {cell(row.cpu_us_per_chunk)} "
                f"| {cell(row.latency_p50_us, 0)} | {cell(row.latency_p99_us, 0)} |"
            )
    return lines
