"""Dynamo's two discovery writes, made certain by what discovery itself shows.

With file discovery a second withdrawal fails because there is nothing left to remove. After a
withdrawal whose answer was lost, every retry would then fail for ever. What a client of the same
endpoint sees settles it: a worker that discovery no longer lists is withdrawn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sglang_worker.lifecycle.registration import Discovery

SETTLE_S = 0.5
POLL_S = 0.005


class ListedDiscovery:
    """``listed()`` says whether the endpoint's own client sees this instance; it may lag."""

    def __init__(self, calls: Discovery, listed: Callable[[], bool]) -> None:
        self._calls = calls
        self._listed = listed
        # Absence proves a withdrawal only if the same view has shown our presence before.
        self._was_listed = False

    async def register(self) -> None:
        self._was_listed = False
        await self._calls.register()
        self._was_listed = await self._settles(True)

    async def withdraw(self) -> None:
        was_listed = self._was_listed or self._listed()
        try:
            await self._calls.withdraw()
        except Exception:
            if was_listed and await self._settles(False):
                return
            raise

    async def _settles(self, listed: bool) -> bool:
        deadline_s = time.monotonic() + SETTLE_S
        while self._listed() is not listed:
            if time.monotonic() >= deadline_s:
                return False
            await asyncio.sleep(POLL_S)
        return True
