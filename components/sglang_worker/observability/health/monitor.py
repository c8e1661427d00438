"""Probes the engine through the worker's own handler, rank by rank, and answers who asks.

It runs whether or not the runtime's canary does. The canary's requests are answered with the
judge's word: each asks for a fresh probe, and is told the verdict within the time that the runtime
grants. So `/health` means the same with the canary on or off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from sglang_worker.observability.health.activity import Activity
from sglang_worker.observability.health.judge import Bounds, Judge, Wish
from sglang_worker.observability.health.probe import Asked, Probe

TICK_S = 0.25
# Of the runtime's own limit; what is left covers the way back.
SHARE_OF_CANARY_TIMEOUT = 0.6
PLAIN_ANSWER = {"token_ids": [], "finish_reason": "stop"}

logger = logging.getLogger(__name__)


class Watched(msgspec.Struct, frozen=True, kw_only=True):
    """``may_ask`` False: a pause would hold a probe, or the memory it needs is released."""

    asked: Asked
    activity: Activity
    may_ask: Callable[[], bool] = lambda: True


class HealthMonitor:
    """Used from one event loop."""

    def __init__(
        self,
        watched: Watched,
        bounds: Bounds,
        *,
        cold: bool,
        canary_timeout_s: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._watched = watched
        self._clock = clock
        self._canary_timeout_s = canary_timeout_s * SHARE_OF_CANARY_TIMEOUT
        self._judge = Judge(bounds, watched.asked.ranks, clock(), cold=cold)
        self._probes: dict[int, Probe] = {}
        self._sample: Any = PLAIN_ANSWER
        self._news = asyncio.Event()
        self._stopped = False

    @property
    def fault(self) -> str | None:
        """Why the engine is not healthy, in one sentence; as of the last tick."""
        return self._judge.fault

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.tick()
            await asyncio.sleep(TICK_S)

    def stop(self) -> None:
        """Send nothing more and take back what is under way."""
        self._stopped = True
        for probe in self._probes.values():
            probe.abort()

    def tick(self) -> None:
        self._observe()
        for rank in range(self._watched.asked.ranks):
            wish = self._judge.wish(rank, self._clock())
            if wish is Wish.SEND and not self._stopped:
                self._send(rank)
            elif wish is Wish.ABORT:
                self._judge.aborted(rank)
                self._probes[rank].abort()

    def _observe(self) -> None:
        reading = self._watched.activity.read()
        if not self._watched.may_ask():
            reading = msgspec.structs.replace(reading, held=True)
        fault = self._judge.fault
        self._judge.observe(reading, self._clock())
        if fault != self._judge.fault:
            self._news.set()

    def _send(self, rank: int) -> None:
        if self._watched.activity.held_probes() > len(self._probes):
            # An aborted one is still in the engine: more of them would pile up in a hung one.
            return
        self._judge.sent(rank, self._clock())
        self._probes[rank] = Probe(
            self._watched.asked, rank, lambda reason: self._ended(rank, reason)
        )

    def _ended(self, rank: int, reason: str | None) -> None:
        probe = self._probes.pop(rank)
        if reason is None:
            self._sample = probe.last_chunk
            self._judge.passed(rank, self._clock())
        else:
            # What a pause or a control call ended must be seen as such.
            self._observe()
            self._judge.failed(rank, reason, self._clock())
        self._news.set()

    async def answer(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The handler of probes that come from the runtime: one chunk if healthy, else none.

        The runtime takes any chunk for health, and prints a traceback for whatever is raised.
        """
        asked_s = self._clock()
        if not self._probes:
            self._judge.probe_now()
        self.tick()
        while not self._settled(asked_s):
            left_s = asked_s + self._canary_timeout_s - self._clock()
            if left_s <= 0:
                break
            self._news.clear()
            try:
                async with asyncio.timeout(left_s):
                    await self._news.wait()
            except asyncio.TimeoutError:
                break
        if self.fault is None:
            yield self._sample

    def _settled(self, asked_s: float) -> bool:
        judge = self._judge
        return judge.fault is not None or judge.held or judge.passed_since(asked_s)
