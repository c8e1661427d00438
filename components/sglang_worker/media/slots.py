"""Room for downloads: a bounded number, shared by account, and a bounded wait for a place.

Whoever answers slowly, on purpose or not, holds places for as long as a download may take. They
are never all of them, and whoever finds no place learns it soon instead of waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sglang_worker.media.errors import MediaBusy
from sglang_worker.media.places import Places

AT_ONCE = 64
MOST_WAITING = 1024


class DownloadSlots:
    """Of those in line, the account that holds fewest goes first, then who came first. Used from
    one loop."""

    def __init__(
        self,
        wait_s: float,
        *,
        at_once: int = AT_ONCE,
        most_waiting: int = MOST_WAITING,
        what: str = "download",
    ) -> None:
        """``wait_s``: how long one may wait; ``most_waiting``: how many may."""
        self._wait_s = wait_s
        self._what = what
        self._places = Places(at_once)
        # The line is shared by the same rule, or one account could fill it.
        self._line = Places(most_waiting)
        # In the order of arrival. After every change nobody in it could have a place.
        self._waiting: dict[asyncio.Future[None], str] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def free(self) -> int:
        return self._places.free

    @asynccontextmanager
    async def place(self, account: str) -> AsyncIterator[None]:
        """Hold a place for the block. Raises MediaBusy; a cancelled wait leaves the line."""
        if self._places.has_room(account):
            self._places.take(account)
        else:
            await self._wait(account)
        try:
            yield
        finally:
            self._give_back(account)

    async def _wait(self, account: str) -> None:
        if not self._line.has_room(account):
            raise MediaBusy(
                f"{self.waiting} {self._what}s wait already, "
                f"{self._line.held(account)} of them for the same server"
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = account
        self._line.take(account)
        try:
            await asyncio.wait({turn}, timeout=self._wait_s)
        except asyncio.CancelledError:
            if turn.done():
                # The place was handed over in the moment of the cancellation.
                self._give_back(account)
            raise
        finally:
            if not turn.done():
                self._leave(turn)
        if not turn.done():
            raise MediaBusy(
                f"no place for one more {self._what} within {self._wait_s:g} s: "
                f"{self._places.held(account)} are taken for the same server, "
                f"{self._places.free} are free in all"
            )

    def _leave(self, turn: asyncio.Future[None]) -> None:
        self._line.give_back(self._waiting.pop(turn))

    def _give_back(self, account: str) -> None:
        self._places.give_back(account)
        while self._places.free and (turn := self._next()) is not None:
            self._places.take(self._waiting[turn])
            self._leave(turn)
            turn.set_result(None)

    def _next(self) -> asyncio.Future[None] | None:
        """``min`` keeps the order of arrival among equals."""
        turn = min(
            self._waiting, key=lambda one: self._places.held(self._waiting[one]), default=None
        )
        # Who holds fewest has room if anybody has.
        return turn if turn and self._places.has_room(self._waiting[turn]) else None
