"""The progress table: redrawn in place on a terminal, one line per change elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from .machine import Phase, PodRelease

COLUMNS = ("POD", "PHASE", "TIME", "DETAIL")


class Table:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._drawn = 0
        self._said: dict[str, str] = {}

    def show(self, pods: Sequence[PodRelease], now_s: float) -> None:
        if self._live:
            self._redraw(render(pods, now_s))
            return
        for pod in pods:
            text = f"{pod.phase.value} {detail(pod)}".strip()
            if self._said.get(pod.pod.uid, Phase.WAITING.value) != text:
                self._said[pod.pod.uid] = text
                self._stream.write(f"{pod.pod.name}: {text} ({elapsed(pod, now_s)})\n")
        self._stream.flush()

    def _redraw(self, lines: list[str]) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F")
        for line in lines:
            self._stream.write(f"\x1b[K{line}\n")
        self._drawn = len(lines)
        self._stream.flush()


def render(pods: Sequence[PodRelease], now_s: float) -> list[str]:
    rows = [COLUMNS] + [
        (pod.pod.name, pod.phase.value, elapsed(pod, now_s), detail(pod)) for pod in pods
    ]
    widths = [max(len(row[index]) for row in rows) for index in range(len(COLUMNS) - 1)]
    done = sum(pod.phase is Phase.DONE for pod in pods)
    body = [
        "  ".join(
            [*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]]
        ).rstrip()
        for row in rows
    ]
    return [*body, f"{done} of {len(pods)} replaced"]


def detail(pod: PodRelease) -> str:
    if pod.phase is Phase.DONE:
        return pod.how.value if pod.how else ""
    parts = [pod.problem or "", pod.waits_for]
    if pod.phase in (Phase.DELETING, Phase.REPLACING) and pod.how is not None:
        parts.insert(0, pod.how.value)
    return "; ".join(part for part in parts if part)


def elapsed(pod: PodRelease, now_s: float) -> str:
    return "-" if pod.phase is Phase.WAITING else f"{max(0.0, now_s - pod.began_s):.0f} s"
