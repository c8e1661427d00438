"""The owner of the worker's place in discovery: what is wanted, and what discovery has confirmed.

Nothing else in the worker may register or withdraw the business endpoint. Calls are serialised by
one task that always works for the latest wish, and a call once begun is never abandoned, however
slow discovery is: its write may still land, so the opposite call has to wait for it. Hence a late
withdrawal can never land after a registration.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from enum import Enum
from typing import Protocol

logger = logging.getLogger(__name__)


class Discovery(Protocol):
    """The two writes, each returning once discovery has confirmed it and raising when the outcome
    is not known. Both cover the endpoint with every served name and LoRA alias."""

    async def register(self) -> None: ...

    async def withdraw(self) -> None: ...


class Confirmed(str, Enum):
    """Is the worker in discovery? UNKNOWN while a write runs and after one that failed."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Written(str, Enum):
    """What became of one wish."""

    CONFIRMED = "confirmed"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class RegistrationOwner:
    """``wish(True)`` asserts registration, ``wish(False)`` withdrawal; event-loop thread only.

    Equal wishes join the attempt that is under way or queued. The opposite wish supersedes what is
    queued, and what is under way keeps running but answers its callers SUPERSEDED at once.
    """

    def __init__(
        self,
        discovery: Discovery,
        on_change: Callable[[Confirmed], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``failures`` counts writes that failed, by what they would have registered (True) or
        withdrawn; ``failed_at_s`` is when the last of them did, on ``clock``."""
        self._discovery = discovery
        self._clock = clock
        self.failures = {True: 0, False: 0}
        self.failed_at_s: float | None = None
        self._on_change = on_change
        self._wanted: asyncio.Future[Written] | None = None
        self._desired = False
        self._confirmed = Confirmed.NO
        self._task: asyncio.Task[None] | None = None
        self.last_error: str | None = None

    @property
    def desired(self) -> bool:
        return self._desired

    @property
    def confirmed(self) -> Confirmed:
        return self._confirmed

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    async def wish(self, registered: bool) -> Written:
        """Wait for the outcome. Cancelling the caller never cancels the write."""
        return await asyncio.shield(self.wish_soon(registered))

    def wish_soon(self, registered: bool) -> asyncio.Future[Written]:
        """As `wish`, returning the future at once: from here on the wish is the latest one."""
        pending = self._wanted
        if pending is not None and not pending.done():
            if self._desired is registered:
                return pending
            pending.set_result(Written.SUPERSEDED)
        self._desired = registered
        wanted = self._wanted = asyncio.get_running_loop().create_future()
        if not self.busy:
            self._task = asyncio.ensure_future(self._work())
        return wanted

    async def settled(self) -> None:
        """Return once no discovery call is running or queued."""
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})

    async def _work(self) -> None:
        while (wanted := self._wanted) is not None and not wanted.done():
            registered = self._desired
            self._set_confirmed(Confirmed.UNKNOWN)
            written = await self._write(registered)
            if written is Written.CONFIRMED:
                self._set_confirmed(Confirmed.YES if registered else Confirmed.NO)
            self._answer(registered, written)

    def _answer(self, registered: bool, written: Written) -> None:
        """The latest wish is answered if this was its direction, even if an opposite wish came and
        went meanwhile: a second identical write would say nothing new."""
        latest = self._wanted
        if latest is not None and not latest.done() and self._desired is registered:
            latest.set_result(written)

    async def _write(self, registered: bool) -> Written:
        verb = "register with" if registered else "withdraw from"
        try:
            await (self._discovery.register() if registered else self._discovery.withdraw())
        except Exception as error:
            # Dynamo raises plain Exception for every discovery failure.
            self.last_error = str(error) or type(error).__name__
            self.failures[registered] += 1
            self.failed_at_s = self._clock()
            logger.warning("could not %s discovery: %s", verb, self.last_error)
            return Written.FAILED
        self.last_error = None
        return Written.CONFIRMED

    def _set_confirmed(self, confirmed: Confirmed) -> None:
        self._confirmed = confirmed
        if self._on_change is not None:
            self._on_change(confirmed)
