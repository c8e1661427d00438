"""The kernel table as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu_rows import markdown

_LETTERS = {"triton": "T", "flashinfer": "F", "cutedsl": "C"}
_PHASES = ("decode", "prefill", "verify")


def render(results: Sequence[Mapping[str, Any]]) -> str:
    """One line per row; a row that did not run says why below the table."""
    keys = list(dict.fromkeys(key for result in results for key in result.get("times", {})))
    head = ["row", "stamp", "kernels", "draft attention", "accepted", *keys]
    lines = markdown.head(head)
    lines += [markdown.line(_row(result, keys)) for result in results]
    failed = [f"- {result['row']}: {result['error']}" for result in results if "error" in result]
    return "\n".join([*lines, "", *failed, ""])


def _row(result: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    runners = {runner["runner"]: runner for runner in result.get("report") or []}
    target, draft = runners.get("target", {}), runners.get("draft", {})
    accepted = result.get("acceptance_length")
    return [
        str(result["row"]),
        _phases(target.get("stamp")),
        _kernels(target.get("kernels")),
        "/".join((draft.get("attention_backend") or {}).values()),
        "" if not draft or accepted is None else f"{accepted:.2f}",
        *(_time(result.get("times", {}).get(key)) for key in keys),
    ]


def _phases(stamp: Mapping[str, str] | None) -> str:
    if not stamp:
        return ""
    return "/".join(_LETTERS.get(stamp[phase], str(stamp[phase])) for phase in _PHASES)


def _kernels(kernels: Mapping[str, str] | None) -> str:
    """Kernel classes carry their library's name."""
    if not kernels:
        return ""
    return "/".join(
        next((short for word, short in _LETTERS.items() if word in kernels[phase].lower()), "?")
        for phase in _PHASES
    )


def _time(timing: Mapping[str, float] | None) -> str:
    if timing is None:
        return ""
    return f"{timing['median_ms']:.2f} ({timing['low_ms']:.2f} to {timing['high_ms']:.2f})"
