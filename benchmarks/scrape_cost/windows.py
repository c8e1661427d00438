"""Windows of one uninterrupted load: how many tokens came, and what CPU each process took.

Windows follow each other without a gap and share their edges, so what one loses at an edge (a step
of the engine brings a token of every stream at once) the next one wins.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import msgspec
import psutil

from benchmarks.streams.load import Load, Worker, cpu_seconds

# Slower than the worker remembers a merge of SGLang's files.
QUICK_PER_S = 5
ROLES = ("scheduler", "detokenizer", "system.child")
"""Words by which the worker's children are told apart; the rest is called other."""


class Edge(msgspec.Struct, frozen=True):
    time_s: float
    tokens: int
    cpu_s: dict[str, float]


class Window(msgspec.Struct, frozen=True):
    """``dose``: scrapes asked for per second, 0 for none. ``cpu_s``: of each process of the worker,
    by role. ``scrapes_ms``: how long each took."""

    dose: int
    seconds: float
    tokens: int
    cpu_s: dict[str, float]
    scrapes_ms: list[float]

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def cpu_us_per_token(self) -> float:
        return 1e6 * sum(self.cpu_s.values()) / self.tokens


class Processes:
    """The worker's, found once: none comes or goes while it serves."""

    def __init__(self, worker: Worker) -> None:
        self._roles = {worker.pid: "worker"}
        for child in psutil.Process(worker.pid).children(recursive=True):
            title = " ".join(child.cmdline())
            self._roles[child.pid] = next((role for role in ROLES if role in title), "other")

    def cpu_s(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for pid, role in self._roles.items():
            found[role] = found.get(role, 0.0) + cpu_seconds(pid)
        return found


async def scrape(worker: Worker, dose: int, took_ms: list[float]) -> None:
    while True:
        began_s = time.monotonic()
        await worker.get("/metrics")
        took_ms.append(1000 * (time.monotonic() - began_s))
        await asyncio.sleep(max(0.0, 1 / dose - (time.monotonic() - began_s)))


class Watch:
    """Of one worker under one load, ``doses``: of the windows in their order."""

    def __init__(self, worker: Worker, load: Load) -> None:
        self._worker = worker
        self._load = load
        self._processes = Processes(worker)

    async def windows(self, doses: Iterable[int], window_s: float) -> list[Window]:
        found = []
        edge = self._edge()
        for dose in doses:
            took_ms: list[float] = []
            scraping = asyncio.create_task(scrape(self._worker, dose, took_ms)) if dose else None
            await asyncio.sleep(window_s)
            if scraping is not None:
                scraping.cancel()
            before, edge = edge, self._edge()
            found.append(_between(before, edge, dose, took_ms))
        return found

    async def idle_cpu_ms(self, seconds: float) -> tuple[float, int]:
        """CPU of one scrape without a load, all of the worker's processes together and less what
        they take unasked; and how many scrapes that is the mean of."""
        unasked, asked = await self.windows((0, QUICK_PER_S), seconds)
        share = asked.seconds / unasked.seconds
        spent_s = sum(asked.cpu_s.values()) - share * sum(unasked.cpu_s.values())
        return 1000 * spent_s / len(asked.scrapes_ms), len(asked.scrapes_ms)

    def _edge(self) -> Edge:
        return Edge(time.monotonic(), self._load.received, self._processes.cpu_s())


def _between(before: Edge, after: Edge, dose: int, took_ms: list[float]) -> Window:
    return Window(
        dose=dose,
        seconds=after.time_s - before.time_s,
        tokens=after.tokens - before.tokens,
        cpu_s={role: after.cpu_s[role] - cpu_s for role, cpu_s in before.cpu_s.items()},
        scrapes_ms=took_ms,
    )
