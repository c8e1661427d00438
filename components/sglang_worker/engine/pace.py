"""Larger chunks instead of a growing delay, when one process cannot hand out every token alone.

A decode step of 128 streams is one message of the scheduler, 128 outputs of SGLang and 128 chunks
for the runtime. Once steps come faster than this process can turn them into chunks, messages
queue, and every token would come later than the one before it. Streams then wait in `Pace.turn`
before they ask SGLang for more, at most `HOLD_S`; SGLang collects what it makes for a stream that
does not ask and hands it over as one output, so a chunk carries several tokens and its cost is
shared. Streams of a process that keeps up never wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger(__name__)

# Messages that queue for less are a burst: several ranks at once, a prefill beside a decode step.
PATIENCE_S = 0.005
# What a stream waits at most, and so by how much its tokens are late.
HOLD_S = 0.02
TELL_AFTER_S = 10.0
TELL_AGAIN_S = 600.0


class Backlog:
    """Whether messages have queued for too long, and for how long in all. A clock is passed in."""

    __slots__ = ("_since_s", "_told_s", "behind", "behind_s")

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._told_s = -TELL_AGAIN_S
        self.behind = False
        # Seconds of all completed backlogs that outlasted `PATIENCE_S`.
        self.behind_s = 0.0

    def look(self, waiting: bool, now_s: float) -> None:
        """To be called for every message: ``waiting`` says whether another has come already."""
        if not waiting:
            if self.behind and self._since_s is not None:
                self.behind_s += now_s - self._since_s
            self._since_s = None
            self.behind = False
        elif self._since_s is None:
            self._since_s = now_s
        else:
            self.behind = now_s - self._since_s >= PATIENCE_S

    def deserves_a_word(self, now_s: float) -> bool:
        """True at most once in `TELL_AGAIN_S`, when a backlog has lasted `TELL_AFTER_S`."""
        since_s = self._since_s
        if not self.behind or since_s is None or now_s - since_s < TELL_AFTER_S:
            return False
        if now_s - self._told_s < TELL_AGAIN_S:
            return False
        self._told_s = now_s
        return True


class Pace:
    """The streams' side. Used from one event loop."""

    __slots__ = ("_backlog", "_clock", "_timer", "_waiters", "behind")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._backlog = Backlog()
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        # Read once per chunk, so it is a plain attribute.
        self.behind = False

    @property
    def behind_s(self) -> float:
        return self._backlog.behind_s

    def look(self, waiting: bool) -> None:
        """A message has come; ``waiting``: another one is there already."""
        now_s = self._clock()
        self._backlog.look(waiting, now_s)
        self.behind = self._backlog.behind
        if self._backlog.deserves_a_word(now_s):
            logger.warning(
                "the engine makes more tokens than this process can hand out one by one; they are "
                "sent in larger chunks (--stream-interval or --gateway-workers relieve it)"
            )

    def let_go(self) -> None:
        """Let every stream that waits ask for what has been collected."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            with suppress(asyncio.InvalidStateError):  # its task was cancelled
                waiter.set_result(None)

    async def turn(self) -> None:
        """Wait until the backlog is gone, at most `HOLD_S`."""
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(HOLD_S, self.let_go)
        waiter = loop.create_future()
        self._waiters.append(waiter)
        await waiter
