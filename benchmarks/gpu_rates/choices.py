"""What a choice of kernels per phase wins over the best single library, shape by shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.gpu_rows import markdown

Result = Mapping[str, Any]
HEAD = ("rows", "shape", "best single", "ms", "best mixed", "ms", "mixed wins", "in rounds")


def render(results: Sequence[Result]) -> str:
    """A line per group and shape that both kinds of row were timed on; "" when there is none."""
    lines = [
        line
        for group in dict.fromkeys(_group(result) for result in results)
        for line in _lines(group, [one for one in results if _group(one) == group])
    ]
    return "\n".join([*markdown.head(HEAD), *lines, ""]) if lines else ""


def _group(result: Result) -> str:
    return str(result["row"]).partition(":")[0]


def _lines(group: str, results: Sequence[Result]) -> list[str]:
    shapes = dict.fromkeys(key for result in results for key in result.get("times", {}))
    lines = []
    for shape in shapes:
        timed = [result for result in results if shape in result.get("times", {})]
        single, mixed = (_best(timed, shape, kind) for kind in ("single", "mixed"))
        if single is None or mixed is None:
            continue
        ours, theirs = mixed["times"][shape], single["times"][shape]
        won = 100 * (1 - ours["median_ms"] / theirs["median_ms"])
        cells = [group, shape, *_named(single, shape), *_named(mixed, shape)]
        lines.append(markdown.line([*cells, f"{won:+.1f} %", _rounds(ours, theirs)]))
    return lines


def _best(results: Sequence[Result], shape: str, kind: str) -> Result | None:
    found = [result for result in results if result.get("kind") == kind]
    return min(found, key=lambda one: one["times"][shape]["median_ms"], default=None)


def _named(result: Result, shape: str) -> list[str]:
    return [str(result["row"]).partition(": ")[2], f"{result['times'][shape]['median_ms']:.2f}"]


def _rounds(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """In how many rounds the mixed row was the faster one. All or none: a difference that the
    machine's drift did not make; anything between is noise."""
    pairs = list(zip(ours["rounds_ms"], theirs["rounds_ms"], strict=False))
    faster = sum(median(mine) < median(other) for mine, other in pairs)
    return f"{faster} of {len(pairs)}"
