"""The line in front of a generator that makes one thing at a time per replica."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class LineFull(Exception):
    """More would only wait; another worker may be free."""


class GenerationLine:
    """First come, first served; a health probe goes to the front. Used from one event loop."""

    def __init__(self, slots: int, limit: int) -> None:
        """``slots``: generations at the same time; ``limit``: how many more may wait."""
        self._free = slots
        self._limit = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @asynccontextmanager
    async def turn(self, *, front: bool = False) -> AsyncIterator[None]:
        """Hold a slot for the block. Raises LineFull at once; a cancelled wait leaves the line."""
        await self._enter(front)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, front: bool) -> None:
        if self._free and not self._waiting:
            self._free -= 1
            return
        if not front and len(self._waiting) >= self._limit:
            raise LineFull(f"{len(self._waiting)} generations wait already")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if front else self._waiting.append)(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # The slot was handed over in the moment of the cancellation.
                self._leave()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def _leave(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1
