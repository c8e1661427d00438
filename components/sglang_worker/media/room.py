"""Room in memory that work over media shares in this process, with a bounded wait for it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from sglang_worker.media.errors import MediaBusy


class Room:
    """First come, first served; a large share is not overtaken by small ones. One event loop."""

    def __init__(self, size: int, wait_s: float, purpose: str) -> None:
        """``size`` in any unit; ``purpose``: for the error, e.g. "one more video"."""
        self._size, self._free = size, size
        self._wait_s = wait_s
        self._purpose = purpose
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def free(self) -> int:
        return self._free

    async def take(self, share: int) -> Callable[[], None]:
        """What gives the share back; calling it again is harmless. Raises MediaBusy; a cancelled
        wait leaves the line. A share above the size gets the whole room."""
        share = min(share, self._size)
        if self._waiting or share > self._free:
            await self._wait(share)
        else:
            self._free -= share
        left = [share]

        def give_back() -> None:
            if left:
                self._give_back(left.pop())

        return give_back

    async def _wait(self, share: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, share))
        try:
            await asyncio.wait({turn}, timeout=self._wait_s)
        except asyncio.CancelledError:
            if turn.done():
                # The share was handed over in the moment of the cancellation.
                self._give_back(share)
            else:
                self._leave(turn, share)
            raise
        if not turn.done():
            self._leave(turn, share)
            raise MediaBusy(f"no room for {self._purpose} within {self._wait_s:g} s")

    def _leave(self, turn: asyncio.Future[None], share: int) -> None:
        self._waiting.remove((turn, share))
        # Those behind a large share may fit.
        self._hand_over()

    def _give_back(self, share: int) -> None:
        self._free += share
        self._hand_over()

    def _hand_over(self) -> None:
        while self._waiting and self._waiting[0][1] <= self._free:
            turn, share = self._waiting.popleft()
            self._free -= share
            turn.set_result(None)
