"""Larger chunks instead of a growing delay, when one process cannot hand out every token alone.

A decode step of 128 streams is one message of the scheduler, 128 outputs of SGLang and 128 chunks
for the runtime. Once steps come faster than this process can turn them into chunks, messages
queue, and every token would come later than the one before it. Streams then wait in `Pace.turn`
before they ask SGLang for more, until the queue is empty or several messages have been taken from
it; SGLang collects what it makes for a stream that does not ask and hands it over as one output, so
a chunk carries several tokens and its cost is shared. A process that keeps up holds nobody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger(__name__)

# Messages that queue for less are a burst (several ranks at once, a prefill beside a decode step),
# or a process that shares its cores and had to wait for one.
PATIENCE_S = 0.05
# A queue that does not end lets streams go on after this long and this many messages: one turn of
# all streams may itself take longer, and would otherwise be about a single message each time.
HOLD_S = 0.02
HOLD_MESSAGES = 4
# No stream waits longer, also when no message comes any more.
HOLD_AT_MOST_S = 0.25
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

    __slots__ = ("_backlog", "_clock", "_held_since_s", "_messages", "_timer", "_waiters", "behind")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._backlog = Backlog()
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        # Since streams were let go: when the first one waited again, messages handled.
        self._held_since_s = 0.0
        self._messages = 0
        # Read once per chunk, so it is a plain attribute.
        self.behind = False

    @property
    def behind_s(self) -> float:
        return self._backlog.behind_s

    def begin(self, waiting: bool) -> None:
        """A message has come and is about to be handled; ``waiting``: another is there already."""
        now_s = self._clock()
        self._backlog.look(waiting, now_s)
        self.behind = self._backlog.behind
        if self._backlog.deserves_a_word(now_s):
            logger.warning(
                "the engine makes more tokens than this process can hand out one by one; they are "
                "sent in larger chunks (--stream-interval or --gateway-workers relieve it)"
            )

    def end(self) -> None:
        """It was handled: what it brought is handed over with what was collected before."""
        self._messages += 1
        if not self._waiters:
            return
        held_s = self._clock() - self._held_since_s
        if not self.behind or (held_s >= HOLD_S and self._messages >= HOLD_MESSAGES):
            self._let_go()

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._messages = 0
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            with suppress(asyncio.InvalidStateError):  # its task was cancelled
                waiter.set_result(None)

    async def turn(self) -> None:
        """Wait until the backlog is gone or enough of it was collected."""
        loop = asyncio.get_running_loop()
        if not self._waiters:
            self._held_since_s = self._clock()
            self._timer = loop.call_later(HOLD_AT_MOST_S, self._let_go)
        waiter = loop.create_future()
        self._waiters.append(waiter)
        await waiter
