"""The worker's end of the pair once its loop runs: pushes with acknowledgements, and calls."""

from __future__ import annotations

import asyncio
import socket

from sglang_worker.system.app import EngineApp, EngineRequest, EngineResponse
from sglang_worker.system.protocol import (
    Frame,
    FrameDecoder,
    Kind,
    Refusal,
    RequestHead,
    ResponseHead,
    decode_struct,
    encode_body,
    encode_struct,
)

_SETTLE_ROUNDS = 8


class _Incoming:
    """A request whose body is still arriving."""

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.body = bytearray()

    @property
    def complete(self) -> bool:
        return len(self.body) >= self.head.body_bytes


class ChildPeer:
    """Serves one child until the pair breaks. Handlers outlive it: an engine call that has begun
    is never cancelled because its caller went away, since SGLang could not be brought back in
    step; only its answer is dropped."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        app: EngineApp,
        running: set[asyncio.Task[None]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._app = app
        self._running = running
        self._incoming: dict[int, _Incoming] = {}
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._closed = False
        self.acknowledged = 0

    @classmethod
    async def open(
        cls, pair: socket.socket, app: EngineApp, running: set[asyncio.Task[None]]
    ) -> ChildPeer:
        reader, writer = await asyncio.open_unix_connection(sock=pair, limit=1 << 20)
        return cls(reader, writer, app, running)

    async def run(self) -> None:
        """Receive until end of file. Raises ProtocolFault or OSError when the pair is unusable."""
        decoder = FrameDecoder()
        while data := await self._reader.read(262144):
            for frame in decoder.feed(data):
                self._receive(frame)

    def send(self, frame: bytes) -> None:
        if not self._closed:
            self._writer.write(frame)

    def close(self) -> None:
        self._closed = True
        self._writer.transport.abort()
        for _, waiter in self._waiters:
            waiter.cancel()

    async def wait_acknowledged(self, sequence: int, timeout_s: float) -> bool:
        """True once the child has put push ``sequence`` (or a later one) into force."""
        if self.acknowledged >= sequence:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((sequence, waiter))
        await asyncio.wait({waiter}, timeout=timeout_s)
        for _ in range(_SETTLE_ROUNDS):
            # If our own loop was blocked, the answer may lie in the socket: read before judging.
            if self.acknowledged >= sequence:
                break
            await asyncio.sleep(0)
        return self.acknowledged >= sequence

    def _receive(self, frame: Frame) -> None:
        if frame.kind is Kind.ACK:
            self._acknowledge(frame.call_id)
        elif frame.kind is Kind.REQUEST:
            incoming = _Incoming(decode_struct(frame, RequestHead))
            self._incoming[frame.call_id] = incoming
            self._start_if_complete(frame.call_id, incoming)
        elif frame.kind is Kind.BODY:
            begun = self._incoming.get(frame.call_id)
            if begun is not None:
                begun.body += frame.payload
                self._start_if_complete(frame.call_id, begun)
        elif frame.kind is Kind.REFUSED:
            refusal: Refusal = decode_struct(frame, Refusal)
            self._app.refused(refusal.method, refusal.path, refusal.remote, refusal.status)

    def _acknowledge(self, sequence: int) -> None:
        self.acknowledged = max(self.acknowledged, sequence)
        due = [waiter for wanted, waiter in self._waiters if wanted <= sequence]
        self._waiters = [(wanted, w) for wanted, w in self._waiters if wanted > sequence]
        for waiter in due:
            if not waiter.done():
                waiter.set_result(None)

    def _start_if_complete(self, call_id: int, incoming: _Incoming) -> None:
        if not incoming.complete:
            return
        del self._incoming[call_id]
        task = asyncio.get_running_loop().create_task(self._serve(call_id, incoming))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve(self, call_id: int, incoming: _Incoming) -> None:
        head = incoming.head
        answer = await self._app.handle(
            EngineRequest(
                method=head.method,
                path=head.path,
                query=head.query,
                body=bytes(incoming.body),
                remote=head.remote,
            )
        )
        await self._answer(call_id, answer)

    async def _answer(self, call_id: int, answer: EngineResponse) -> None:
        head = ResponseHead(
            status=answer.status, headers=answer.headers, body_bytes=len(answer.body)
        )
        self.send(encode_struct(Kind.RESPONSE, head, call_id))
        for frame in encode_body(call_id, answer.body):
            self.send(frame)
            try:
                await self._writer.drain()
            except OSError:
                # The child has gone, and the client's connection with it.
                return
