"""Handing answers to the runtime from a thread of its own, so that a slow reader stops nobody else.

The runtime takes chunks in two ways. It may pull them, one asyncio task and several switches
between threads for every chunk; or the handler pushes them into a sink, which is many times
cheaper (docs/performance.md), but whose ``send`` blocks once its reader has fallen behind by what
the sockets hold. On the event loop that would stop every request and every route, so a sending
thread does it. When one send takes too long, the thread stays with that stream alone and another
takes over the queue; a stream therefore waits for no reader but its own, and its order is kept.
`engine.egress_stalls` counts such streams.

The handler is held back once `WINDOW_CHUNKS` of its stream are unsent: as when pulled, SGLang then
collects what it makes and hands it over as one output.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Protocol

from sglang_worker.engine.egress_stalls import STALLS, StallCounts

logger = logging.getLogger(__name__)

WINDOW_CHUNKS = 64
# A send that takes this long waits for its reader, or for a busy interpreter, which does no harm.
STALLED_S = 0.05
# While readers stall, others are likely to follow: a stopped frontend has many streams.
NEXT_STALLED_S = 0.005

_CLOSE = object()


class SendingBroke(Exception):
    """A sink ended a send in a way that is no error of its contract."""


class Sink(Protocol):
    """The runtime's end of one response stream."""

    def send(self, chunk: Any) -> None:
        """Blocks while the reader is behind. RuntimeError: the reader is gone."""

    def close(self) -> None: ...


class Outlet:
    """One response stream. `put`, `drained` and ``error`` are the event loop's."""

    __slots__ = (
        "_crew",
        "_low",
        "_put",
        "_sent",
        "_sink",
        "_waiter",
        "backlog",
        "error",
        "stalled",
    )

    def __init__(self, crew: Crew, sink: Sink) -> None:
        self._crew = crew
        self._sink = sink
        # Each counter has one writer: the loop, and whichever thread has the stream.
        self._put = 0
        self._sent = 0
        self._low = 0
        self._waiter: asyncio.Future[None] | None = None
        # What ended sending early; RuntimeError when the reader is gone.
        self.error: Exception | None = None
        # Guarded by the crew's lock: a thread of its own has the stream, and what it still gets.
        self.stalled = False
        self.backlog: deque[Any] = deque()

    @property
    def unsent(self) -> int:
        return self._put - self._sent

    def put(self, chunk: Any) -> None:
        self._put += 1
        self._crew.queue.put((self, chunk))

    def put_close(self) -> None:
        self.put(_CLOSE)

    async def drained(self, unsent: int = 0) -> None:
        """Return once no more than ``unsent`` chunks wait, or sending has failed."""
        loop = asyncio.get_running_loop()
        while self.unsent > unsent:
            waiter = loop.create_future()
            self._low, self._waiter = unsent, waiter
            # The thread looks for a waiter after it has counted, so one of the two sees the other.
            if self.unsent <= unsent:
                self._waiter = None
                return
            await waiter

    def deliver(self, chunk: Any) -> None:
        """Called by the one thread that has the stream."""
        if self.error is None:
            try:
                if chunk is _CLOSE:
                    self._sink.close()
                else:
                    self._sink.send(chunk)
            except Exception as error:
                self.error = error
            except BaseException as panic:
                # A panic of the runtime's Rust is no Exception; without this the thread would end
                # and the stream wait for ever.
                self.error = SendingBroke(f"the runtime broke while it sent a chunk: {panic!r}")
        self._sent += 1
        waiter = self._waiter
        if waiter is not None and self.unsent <= self._low:
            self._waiter = None
            with suppress(RuntimeError):  # the loop has ended
                waiter.get_loop().call_soon_threadsafe(_resolve, waiter)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Shift:
    """A thread's turn at the queue. Guarded by the crew's lock."""

    __slots__ = ("outlet", "relieved", "since_s")

    def __init__(self) -> None:
        self.outlet: Outlet | None = None
        self.since_s = 0.0
        self.relieved = False


class Crew:
    """The sending threads: one at the queue, and one with each stream whose reader stalls."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, counts: StallCounts = STALLS
    ) -> None:
        self._counts = counts
        self.queue: queue.SimpleQueue[tuple[Outlet, Any]] = queue.SimpleQueue()
        self._clock = clock
        self._lock = threading.Lock()
        self._shift: _Shift | None = None
        self._stalled = 0
        self._told = False

    @property
    def stalled(self) -> int:
        """Streams that have a thread of their own."""
        with self._lock:
            return self._stalled

    def start(self) -> None:
        """Put a thread at the queue unless one is there."""
        with self._lock:
            if self._shift is None:
                self._begin_shift()

    def relieve(self) -> bool:
        """Put another thread at the queue if the one there waits for a reader; whether it did."""
        with self._lock:
            shift = self._shift
            limit_s = NEXT_STALLED_S if self._stalled else STALLED_S
            if shift is None or shift.outlet is None or self._clock() - shift.since_s < limit_s:
                return False
            try:
                self._begin_shift()
            except RuntimeError as error:
                if not self._told:
                    self._told = True
                    logger.warning("no thread to go on beside a slow reader: %s", error)
                return False
            shift.relieved = shift.outlet.stalled = True
            self._stalled += 1
        self._counts.began()
        return True

    def _begin_shift(self) -> None:
        shift = _Shift()
        # A daemon: a reader that never returns must not hold the process.
        threading.Thread(target=self._serve, args=(shift,), name="egress", daemon=True).start()
        self._shift = shift

    def _serve(self, shift: _Shift) -> None:
        take = self.queue.get
        while True:
            outlet, chunk = take()
            with self._lock:
                if outlet.stalled:
                    outlet.backlog.append(chunk)
                    continue
                shift.outlet, shift.since_s = outlet, self._clock()
            outlet.deliver(chunk)
            with self._lock:
                shift.outlet = None
                if not shift.relieved:
                    continue
            self._stay_with(outlet)
            return

    def _stay_with(self, outlet: Outlet) -> None:
        while True:
            with self._lock:
                if not outlet.backlog:
                    outlet.stalled = False
                    self._stalled -= 1
                    break
                chunk = outlet.backlog.popleft()
            outlet.deliver(chunk)
        self._counts.ended()


class Egress:
    """Drives handlers into sinks. Used from one event loop."""

    def __init__(self, crew: Crew | None = None) -> None:
        self._crew = Crew() if crew is None else crew
        self._open = 0
        self._watch: asyncio.TimerHandle | None = None

    async def push(self, chunks: AsyncIterator[Any], sink: Sink) -> AsyncIterator[Any]:
        """Send ``chunks`` into ``sink``; yields nothing and ends when all is handed over.

        An asynchronous generator because that is what the runtime advances, once. What the
        handler raises passes through after the chunks before it.
        """
        outlet = Outlet(self._crew, sink)
        self._opened()
        try:
            await _fill(outlet, chunks)
        finally:
            self._open -= 1
        if outlet.error is not None and not isinstance(outlet.error, RuntimeError):
            raise outlet.error
        return
        yield  # makes this a generator

    def _opened(self) -> None:
        self._open += 1
        self._crew.start()
        if self._watch is None:
            self._look()

    def _look(self) -> None:
        relieved = self._crew.relieve()
        if not self._open:
            self._watch = None
            return
        again_s = NEXT_STALLED_S if relieved or self._crew.stalled else STALLED_S
        self._watch = asyncio.get_running_loop().call_later(again_s, self._look)


async def _fill(outlet: Outlet, chunks: AsyncIterator[Any]) -> None:
    try:
        async for chunk in chunks:
            if outlet.error is not None:
                break
            outlet.put(chunk)
            if outlet.unsent > WINDOW_CHUNKS:
                await outlet.drained(WINDOW_CHUNKS // 2)
        else:
            outlet.put_close()
    except Exception:
        await outlet.drained()
        raise
    await outlet.drained()
    if outlet.error is not None:
        # The reader is gone: the handler learns it as if the runtime had dropped it.
        await chunks.aclose()  # type: ignore[attr-defined]
