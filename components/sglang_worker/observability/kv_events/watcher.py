"""Listens to the same streams as the runtime's relay and counts what the relay does not tell.

A second subscriber costs no second relay: libzmq receives in its own thread, and a few times per
second everything that has arrived is read without unpacking token ids.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sglang_worker.observability.kv_events import batches
from sglang_worker.observability.kv_events.counters import Fault, KvEventCounters, StreamCounters
from sglang_worker.observability.kv_events.sequence import SequenceCheck, Step
from sglang_worker.observability.kv_events.sources import KvSource

logger = logging.getLogger(__name__)

READ_INTERVAL_S = 0.25
BATCHES_AT_ONCE = 200
"""Bounds how long one reading keeps the loop busy."""
QUEUED_BATCHES = 100_000
"""As many as SGLang's publisher keeps by default, so that a slow loop alone loses nothing."""
COMPLAIN_EVERY_S = 10.0


class StreamWatch:
    """Judges one rank's batches. Free of sockets and of the loop."""

    def __init__(
        self, dp_rank: int, counters: StreamCounters, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._dp_rank = dp_rank
        self._counters = counters
        self._sequence = SequenceCheck()
        self._clock = clock
        self._complain_from_s = float("-inf")
        self._unsaid = 0

    def take(self, frames: Sequence[Any]) -> None:
        """Never raises for what is on the wire."""
        try:
            batch = batches.read(frames)
        except batches.Unreadable as unreadable:
            self._count_fault(unreadable.fault)
            self._count_number_of(frames)
            return
        self._counters.batches += 1
        for kind in batch.kinds:
            if kind is None:
                self._count_fault(Fault.EVENT)
            else:
                self._counters.events[kind] += 1
        if batch.dp_rank is not None and batch.dp_rank != self._dp_rank:
            self._count_fault(Fault.RANK)
        self._judge(batch.number, batch.made_at_s)

    def _count_number_of(self, frames: Sequence[Any]) -> None:
        """An unreadable batch is malformed, not lost: its number, when it has one, has come."""
        try:
            number = batches.number_of(frames)
        except batches.Unreadable:
            return
        self._judge(number, None)

    def _judge(self, number: int, made_at_s: float | None) -> None:
        counters = self._counters
        verdict = self._sequence.observe(number, made_at_s)
        if verdict.step in (Step.FIRST, Step.RESTARTED):
            counters.missed_at_start += verdict.missing
            counters.restarts += verdict.step is Step.RESTARTED
        else:
            counters.skipped += verdict.missing
        counters.late += verdict.step is Step.LATE
        counters.repeated += verdict.step is Step.REPEATED
        if verdict.step is Step.GAP:
            self._complain("%d batches of KV events are missing", verdict.missing)
        elif verdict.step is Step.RESTARTED:
            self._complain("the publisher of KV events began anew at batch %d", number)

    def _count_fault(self, fault: Fault) -> None:
        self._counters.malformed[fault] += 1
        self._complain("a batch of KV events could not be read (%s)", fault.value)

    def _complain(self, sentence: str, *values: object) -> None:
        now_s = self._clock()
        if now_s < self._complain_from_s:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more such lines were left out)" if self._unsaid else ""
        logger.warning("data-parallel rank %d: " + sentence + more, self._dp_rank, *values)
        self._complain_from_s, self._unsaid = now_s + COMPLAIN_EVERY_S, 0


class KvEventWatcher:
    """Subscribes to every source. All methods belong to the loop's thread."""

    def __init__(self, sources: Iterable[KvSource], counters: KvEventCounters) -> None:
        self._sources = tuple(sources)
        self._counters = counters
        self._sockets: list[tuple[Any, StreamWatch]] = []
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        zmq: Any = importlib.import_module("zmq")
        context = zmq.Context.instance()
        for source in self._sources:
            socket = context.socket(zmq.SUB)
            socket.setsockopt(zmq.RCVHWM, QUEUED_BATCHES)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt_string(zmq.SUBSCRIBE, source.topic)
            socket.connect(source.endpoint)
            watch = StreamWatch(source.dp_rank, self._counters.rank(source.dp_rank))
            self._sockets.append((socket, watch))
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        sockets, self._sockets = self._sockets, []
        for socket, _ in sockets:
            socket.close(linger=0)

    async def _run(self) -> None:
        while True:
            # Between two readings the loop belongs to others, however many batches wait.
            pause_s = 0.0 if self._read() else READ_INTERVAL_S
            await asyncio.sleep(pause_s)

    def _read(self) -> bool:
        """True when more may be waiting."""
        zmq: Any = importlib.import_module("zmq")
        more = False
        for socket, watch in self._sockets:
            for _ in range(BATCHES_AT_ONCE):
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                watch.take(frames)
            else:
                more = True
        return more
