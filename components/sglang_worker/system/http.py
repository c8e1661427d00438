"""A bounded HTTP/1.1 server on h11: small heads, limited bodies, clients that cannot block others.

Every wait on a client has a timeout, bodies are read only after the handler asked for them, and
when too many connections are open the longest idle one gives way, so that a probe always gets in.
"""

from __future__ import annotations

import asyncio
import copy
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import h11
import msgspec


class HttpLimits(msgspec.Struct, frozen=True):
    head_bytes: int = 32 * 1024
    head_timeout_s: float = 15.0
    idle_timeout_s: float = 75.0
    body_timeout_s: float = 20.0
    """Between two reads of a body, and for a client to take a response."""
    body_total_timeout_s: float = 300.0
    linger_s: float = 2.0
    connections: int = 512


class HttpResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes | AsyncIterator[bytes] = b""
    headers: dict[str, str] = {}


class HttpError(Exception):
    """Answered as ``{"error": message}`` with ``status``."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}


def json_response(
    status: int, value: object, headers: dict[str, str] | None = None
) -> HttpResponse:
    body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    return HttpResponse(
        status=status, body=body, headers={"Content-Type": "application/json", **(headers or {})}
    )


class HttpRequest:
    """One request; the body stays on the wire until `read_body`."""

    def __init__(self, connection: Connection, event: h11.Request, remote: str) -> None:
        self._connection = connection
        self.method = event.method.decode("ascii")
        self.target = event.target.decode("ascii")
        self.path, _, self.query = self.target.partition("?")
        self.headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers
        }
        self.remote = remote

    def as_get(self, path: str) -> HttpRequest:
        """A GET of another path on behalf of the same client, without a body."""
        other = copy.copy(self)
        other.method, other.target, other.path, other.query = "GET", path, path, ""
        return other

    def without(self, header: str) -> HttpRequest:
        """The same request as if the client had not sent this header (lower case)."""
        other = copy.copy(self)
        other.headers = {name: value for name, value in self.headers.items() if name != header}
        return other

    @property
    def declared_length(self) -> int | None:
        """Content-Length (h11 has validated it), or None for chunked and absent bodies."""
        text = self.headers.get("content-length")
        return None if text is None else int(text)

    async def read_body(self, limit_bytes: int) -> bytes:
        """The whole body, or HttpError 413 before more than ``limit_bytes`` were held."""
        return await self._connection.read_body(self.declared_length, limit_bytes)


Handler = Callable[[HttpRequest], Awaitable[HttpResponse]]


class Connection:
    """One client connection, from accept to close."""

    def __init__(
        self,
        handler: Handler,
        limits: HttpLimits,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._handler = handler
        self._limits = limits
        self._reader = reader
        self._writer = writer
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        peer = writer.get_extra_info("peername")
        self._remote = str(peer[0]) if peer else ""
        # Set while we wait for the client's bytes: such a connection may be dropped to make room.
        self.waiting_since_s: float | None = None

    async def run(self) -> None:
        try:
            while await self._serve_one():
                self._wire.start_next_cycle()
                # Nothing else makes way between calls that arrived together.
                await asyncio.sleep(0)
        except (OSError, asyncio.TimeoutError, h11.ProtocolError):
            # The client is gone or too slow to take its answer: there is no one to tell.
            return
        finally:
            await self._finish()

    def abort(self) -> None:
        """Drop the connection at once; used to make room."""
        self._writer.transport.abort()

    async def _serve_one(self) -> bool:
        """Serve one request; False when the connection must close."""
        try:
            event = await self._read_head()
        except h11.RemoteProtocolError as error:
            await self._respond_last(HttpError(error.error_status_hint, "malformed request"))
            return False
        if event is None:
            return False
        request = HttpRequest(self, event, self._remote)
        try:
            response = await self._handler(request)
        except HttpError as error:
            response = json_response(error.status, {"error": str(error)}, error.headers)
        except h11.RemoteProtocolError:
            await self._respond_last(HttpError(400, "malformed request body"))
            return False
        await self._send(response, head_only=request.method == "HEAD")
        await self._discard_rest()
        return self._wire.our_state is h11.DONE and self._wire.their_state is h11.DONE

    async def _read_head(self) -> h11.Request | None:
        """The next request head; None at end of stream or when the client kept us waiting."""
        loop = asyncio.get_running_loop()
        self.waiting_since_s = loop.time()
        deadline = loop.time() + self._limits.idle_timeout_s
        started = False
        while True:
            event = self._wire.next_event()
            if isinstance(event, h11.Request):
                self.waiting_since_s = None
                if not _announces_body(event):
                    # Nothing will follow: take the end now, or the connection could not be kept.
                    self._wire.next_event()
                return event
            if event is not h11.NEED_DATA:
                return None
            if not started and self._wire.trailing_data[0]:
                started = True
                deadline = loop.time() + self._limits.head_timeout_s
            try:
                data = await self._receive(16384, deadline - loop.time())
            except asyncio.TimeoutError:
                if started:
                    await self._respond_last(HttpError(408, "the request head did not arrive"))
                return None
            self._wire.receive_data(data)

    async def read_body(self, declared: int | None, limit_bytes: int) -> bytes:
        if declared is not None and declared > limit_bytes:
            raise _too_large(limit_bytes)
        if self._wire.their_state is h11.DONE:
            return b""
        if self._wire.they_are_waiting_for_100_continue:
            self._write(h11.InformationalResponse(status_code=100, headers=[]))
            await self._flush()
        body = bytearray()
        loop = asyncio.get_running_loop()
        self.waiting_since_s = loop.time()
        deadline = self.waiting_since_s + self._limits.body_total_timeout_s
        while True:
            event = await self._next_body_event(deadline)
            if isinstance(event, h11.EndOfMessage):
                self.waiting_since_s = None
                return bytes(body)
            body += event.data
            if len(body) > limit_bytes:
                raise _too_large(limit_bytes)

    async def _next_body_event(self, deadline_s: float) -> Any:
        loop = asyncio.get_running_loop()
        while True:
            event = self._wire.next_event()
            if event is not h11.NEED_DATA:
                if isinstance(event, (h11.Data, h11.EndOfMessage)):
                    return event
                raise HttpError(400, "the request body ended early")
            patience_s = min(self._limits.body_timeout_s, deadline_s - loop.time())
            try:
                data = await self._receive(65536, patience_s)
            except asyncio.TimeoutError:
                raise HttpError(408, "the request body did not arrive") from None
            self._wire.receive_data(data)

    async def _receive(self, most_bytes: int, left_s: float) -> bytes:
        """What the client sent next, empty at its end. Raises TimeoutError."""
        if left_s <= 0:
            # A read that finds bytes does not wait, and so would not notice that time is up.
            raise TimeoutError
        async with asyncio.timeout(left_s):
            return await self._reader.read(most_bytes)

    async def _send(self, response: HttpResponse, *, head_only: bool) -> None:
        headers = dict(response.headers)
        body = response.body
        if isinstance(body, bytes):
            headers["Content-Length"] = str(len(body))
        if self._wire.their_state is not h11.DONE:
            headers["Connection"] = "close"
        head = h11.Response(status_code=response.status, headers=list(headers.items()))
        if isinstance(body, bytes):
            # One write, so that a small answer leaves in one segment.
            content = [h11.Data(data=body)] if body and not head_only else []
            self._write(head, *content, h11.EndOfMessage())
        else:
            self._write(head)
            if not head_only:
                async for chunk in body:
                    self._write(h11.Data(data=chunk))
                    await self._flush()
            self._write(h11.EndOfMessage())
        await self._flush()

    async def _respond_last(self, error: HttpError) -> None:
        if self._wire.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        response = json_response(error.status, {"error": str(error)}, {"Connection": "close"})
        await self._send(response, head_only=False)

    async def _discard_rest(self) -> None:
        """Throw away a refused body for a moment: closing at once would reset the connection
        under a client that is still sending, and our answer would be lost with it."""
        if self._wire.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR):
            return
        if self._wire.they_are_waiting_for_100_continue:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.linger_s
        while loop.time() < deadline:
            data = await self._receive(262144, deadline - loop.time())
            if not data:
                return

    def _write(self, *events: h11.Event) -> None:
        data = b"".join(self._wire.send(event) or b"" for event in events)
        if data:
            self._writer.write(data)

    async def _flush(self) -> None:
        async with asyncio.timeout(self._limits.body_timeout_s):
            await self._writer.drain()

    async def _finish(self) -> None:
        self._writer.close()
        try:
            async with asyncio.timeout(self._limits.linger_s):
                await self._writer.wait_closed()
        except (OSError, asyncio.TimeoutError):
            self._writer.transport.abort()


class HttpServer:
    """Accepts on a listening socket that somebody else has bound."""

    def __init__(self, handler: Handler, limits: HttpLimits) -> None:
        self._handler = handler
        self._limits = limits
        self._connections: set[Connection] = set()

    async def serve(self, listening: socket.socket) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, sock=listening, limit=65536)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._limits.connections and not self._make_room():
            writer.transport.abort()
            return
        connection = Connection(self._handler, self._limits, reader, writer)
        self._connections.add(connection)
        try:
            await connection.run()
        finally:
            self._connections.discard(connection)

    def _make_room(self) -> bool:
        """Drop the connection that has kept us waiting longest; False when all are at work."""
        idle = [(c.waiting_since_s, c) for c in self._connections if c.waiting_since_s is not None]
        if not idle:
            return False
        longest = min(idle, key=lambda pair: pair[0])[1]
        self._connections.discard(longest)
        longest.abort()
        return True


def _too_large(limit_bytes: int) -> HttpError:
    return HttpError(413, f"the request body is over the limit of {limit_bytes} bytes")


def _announces_body(event: h11.Request) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0") != b"")
        for name, value in event.headers
    )
