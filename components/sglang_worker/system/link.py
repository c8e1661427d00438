"""The child's end of the socketpair: the pushed state, the catalog, and calls to the worker."""

from __future__ import annotations

import asyncio
import itertools
import time

from sglang_worker.system.http import HttpError
from sglang_worker.system.protocol import (
    Frame,
    FrameDecoder,
    Kind,
    Refusal,
    RequestHead,
    ResponseHead,
    StatePush,
    decode_struct,
    encode,
    encode_body,
    encode_struct,
)
from sglang_worker.system.state import Catalog, Phase, WorkerState

MAX_CALLS = 128


class PendingCall:
    """One call that the worker is handling; resolves when head and whole body have arrived."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[ResponseHead, bytes]] = (
            asyncio.get_running_loop().create_future()
        )
        self._head: ResponseHead | None = None
        self._body = bytearray()

    def head_arrived(self, head: ResponseHead) -> None:
        self._head = head
        self._settle()

    def body_arrived(self, chunk: bytes) -> None:
        self._body += chunk
        self._settle()

    def worker_gone(self) -> None:
        if not self.answer.done():
            self.answer.set_exception(HttpError(503, "the worker ended before it answered"))

    def _settle(self) -> None:
        head = self._head
        if head is not None and len(self._body) >= head.body_bytes and not self.answer.done():
            self.answer.set_result((head, bytes(self._body)))


class WorkerLink:
    """Lives as long as the pair; `run` returns when the worker is gone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._drain_lock = asyncio.Lock()
        self._ids = itertools.count(1)
        self._calls: dict[int, PendingCall] = {}
        self._reported_phase: Phase | None = None
        self.push: StatePush | None = None
        self.catalog: Catalog | None = None

    @property
    def state(self) -> WorkerState:
        """The last pushed state; the default (loading, unhealthy) before the first push."""
        return WorkerState() if self.push is None else self.push.state

    @property
    def phase(self) -> Phase:
        """What the scheduler reported since the worker's own last change, else the worker's."""
        return self._reported_phase or self.state.phase

    @property
    def waiting_calls(self) -> int:
        return len(self._calls)

    def age_s(self) -> float | None:
        """Seconds since the worker sent what we show; None before the first push."""
        return None if self.push is None else max(0.0, time.monotonic() - self.push.sent_at_s)

    def report_phase(self, phase: Phase) -> None:
        """A process of the worker other than its main one says how far loading has come."""
        if not self.state.started:
            self._reported_phase = phase

    async def run(self) -> None:
        decoder = FrameDecoder()
        try:
            while data := await self._reader.read(262144):
                for frame in decoder.feed(data):
                    self._receive(frame)
        finally:
            for pending in self._calls.values():
                pending.worker_gone()

    async def call(self, head: RequestHead, body: bytes) -> tuple[ResponseHead, bytes]:
        """Hand one request to the worker and wait for its answer, however long it takes."""
        if len(self._calls) >= MAX_CALLS:
            raise HttpError(503, f"the worker already handles {MAX_CALLS} calls; try again later")
        call_id = next(self._ids)
        pending = self._calls[call_id] = PendingCall()
        try:
            self._writer.write(encode_struct(Kind.REQUEST, head, call_id))
            for frame in encode_body(call_id, body):
                self._writer.write(frame)
                async with self._drain_lock:
                    await self._writer.drain()
            return await pending.answer
        finally:
            self._calls.pop(call_id, None)

    def tell_refusal(self, refusal: Refusal) -> None:
        self._writer.write(encode_struct(Kind.REFUSED, refusal))

    def _receive(self, frame: Frame) -> None:
        if frame.kind is Kind.STATE:
            self._state_arrived(decode_struct(frame, StatePush))
        elif frame.kind is Kind.CATALOG:
            self.catalog = decode_struct(frame, Catalog)
        elif frame.kind is Kind.RESPONSE:
            if pending := self._calls.get(frame.call_id):
                pending.head_arrived(decode_struct(frame, ResponseHead))
        elif frame.kind is Kind.BODY and (pending := self._calls.get(frame.call_id)):
            pending.body_arrived(frame.payload)

    def _state_arrived(self, push: StatePush) -> None:
        if push.state.phase is not self.state.phase or push.state.started:
            self._reported_phase = None
        self.push = push
        # Acknowledged only after it is in force: the worker opens or closes its gate on this.
        self._writer.write(encode(Kind.ACK, push.sequence))
