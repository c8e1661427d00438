"""Which threads of a worker, its engine and its frontend were busy, from the kernel's own books."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHOWN = 8
# Less of one core than this is left out.
LOWEST_SHARE = 0.03

# (process name, pid, thread id, thread name) -> CPU seconds
Books = dict[tuple[str, int, int, str], float]


def look(pids: Mapping[str, int]) -> Books:
    """CPU seconds of every thread of these processes and of all their descendants."""
    books: Books = {}
    for name, pid in pids.items():
        books |= _threads(name, pid)
        with suppress(psutil.Error):
            for child in psutil.Process(pid).children(recursive=True):
                books |= _threads(f"{name}/{_title(child)}", child.pid)
    return books


def shares(before: Books, after: Books, seconds: float) -> list[str]:
    """``process thread: share of one core``, the busiest first."""
    spent = {key: (value - before.get(key, 0.0)) / seconds for key, value in after.items()}
    busiest = sorted(spent.items(), key=lambda one: -one[1])[:SHOWN]
    return [
        f"{name} {'main' if pid == thread else comm}: {share:.2f}"
        for (name, pid, thread, comm), share in busiest
        if share >= LOWEST_SHARE
    ]


def _threads(name: str, pid: int) -> Books:
    books: Books = {}
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            head, _, tail = (folder / "stat").read_text().rpartition(")")
            fields = tail.split()
            spent_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
            books[(name, pid, int(folder.name), head.partition("(")[2])] = spent_s
    return books


def _title(process: psutil.Process) -> str:
    """SGLang names its processes; a gateway is told by its command line."""
    words = " ".join(process.cmdline())
    for word, title in (
        ("sglang::scheduler", "scheduler"),
        ("sglang::detokenizer", "detokenizer"),
        ("tokenizer_worker", "gateway"),
    ):
        if word in words:
            return title
    return words.partition(" ")[0].rpartition("/")[2][:24] or process.name()
