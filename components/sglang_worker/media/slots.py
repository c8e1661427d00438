"""Room for downloads: few per host, a bounded number in all, and a bounded wait for a place.

Hosts that answer slowly, on purpose or not, hold their places for as long as a download may take.
They can hold no others, and whoever finds everything taken learns it soon instead of waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sglang_worker.media.errors import MediaBusy

AT_ONCE = 64
PER_HOST = 32
MOST_WAITING = 1024


class DownloadSlots:
    """First come, first served among those whose host has a place left. Used from one loop."""

    def __init__(
        self,
        wait_s: float,
        *,
        at_once: int = AT_ONCE,
        per_host: int = PER_HOST,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        """``wait_s``: how long one may wait; ``most_waiting``: how many may."""
        self._wait_s = wait_s
        self._free = at_once
        self._per_host = per_host
        self._most_waiting = most_waiting
        self._of_host: Counter[str] = Counter()
        # In the order of arrival. After every change nobody in it could have a place.
        self._waiting: dict[asyncio.Future[None], str] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def place(self, host: str) -> AsyncIterator[None]:
        """Hold a place for the block. Raises MediaBusy; a cancelled wait leaves the line."""
        if self._has_room(host):
            self._take(host)
        else:
            await self._wait(host)
        try:
            yield
        finally:
            self._give_back(host)

    async def _wait(self, host: str) -> None:
        if len(self._waiting) >= self._most_waiting:
            raise MediaBusy(f"{len(self._waiting)} downloads wait already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = host
        try:
            await asyncio.wait({turn}, timeout=self._wait_s)
        except asyncio.CancelledError:
            if turn.done():
                # The place was handed over in the moment of the cancellation.
                self._give_back(host)
            raise
        finally:
            self._waiting.pop(turn, None)
        if not turn.done():
            raise MediaBusy(
                f"no place for one more download within {self._wait_s:g} s: "
                f"{self._of_host[host]} of this host's {self._per_host} are taken, "
                f"{self._free} are free in all"
            )

    def _has_room(self, host: str) -> bool:
        return self._free > 0 and self._of_host[host] < self._per_host

    def _take(self, host: str) -> None:
        self._free -= 1
        self._of_host[host] += 1

    def _give_back(self, host: str) -> None:
        self._free += 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        for turn, waiting_host in tuple(self._waiting.items()):
            if not self._free:
                break
            if self._has_room(waiting_host):
                self._take(waiting_host)
                del self._waiting[turn]
                turn.set_result(None)
