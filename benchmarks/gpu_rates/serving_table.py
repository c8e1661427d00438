"""The table of `benchmarks.gpu_serving` from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.gpu_rows import markdown


def _workers_in(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The workers that were measured, in order."""
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(way.rsplit(" ", 1)[0] for way in row.get("tokens_per_s", {}))
    return [name for name in names if name != "bare"]


def tables(rows: Sequence[dict[str, Any]]) -> str:
    workers = _workers_in(rows)
    head = ["shape", "mode", "bare", *(f"{name} (of bare)" for name in workers)]
    head += ["first token ms: bare, workers", "CPU us per token: worker + frontend"]
    lines = markdown.head(head)
    for row in rows:
        shape = row["shape"]
        name = f"{shape['name']} {shape['batch']} x {shape['prompt_tokens']}+{shape['new_tokens']}"
        if row.get("left"):
            lines.append(markdown.line([name, "no time was left", *[""] * (len(head) - 2)]))
            continue
        lines += [
            markdown.line([name, how, *_figures(row, how, workers)])
            for how in ("whole", "stream")
            if f"bare {how}" in row["tokens_per_s"]
        ]
    return "\n".join([*lines, ""])


def _figures(row: dict[str, Any], how: str, workers: Sequence[str]) -> list[str]:
    rates, firsts, spent = row["tokens_per_s"], row["first_token_ms"], row["cpu_us_per_token"]
    bare = rates[f"bare {how}"]
    cells = [_rate(bare)]
    for name in workers:
        ours = rates[f"{name} {how}"]
        cells.append(f"{_rate(ours)} ({ours[0] / bare[0]:.2f}{_by_round(row, how, name)})")
    known = [firsts[f"{name} {how}"][0] for name in ("bare", *workers) if f"{name} {how}" in firsts]
    cells.append(", ".join(f"{one:.0f}" for one in known))
    cells.append("; ".join("{} + {}".format(*spent[f"{name} {how}"]) for name in workers))
    return cells


def _by_round(row: dict[str, Any], how: str, name: str) -> str:
    """The median of the rounds' own ratios; earlier records have no rounds."""
    seconds = row.get("seconds", {})
    if f"bare {how}" not in seconds:
        return ""
    pairs = zip(seconds[f"bare {how}"], seconds[f"{name} {how}"], strict=True)
    return f"; by round {median(bare / ours for bare, ours in pairs):.2f}"


def _rate(values: Sequence[float]) -> str:
    return f"{values[0]:,.0f} ({values[1]:,.0f} to {values[2]:,.0f})"
