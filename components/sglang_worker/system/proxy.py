"""Forwarding probes, metrics and metadata to the runtime's own server, byte for byte.

Used by the child only. The runtime's server answers within milliseconds while the process lives,
so a short timeout on probes tells a stopped process from a busy one; metrics run Python callbacks
and may wait for the interpreter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import h11

from sglang_worker.system.http import HttpRequest, HttpResponse
from sglang_worker.system.state import RuntimeAddress

PROBE_TIMEOUT_S = 2.0
DOCUMENT_TIMEOUT_S = 10.0

_FORWARDED = ("accept", "accept-encoding", "if-none-match", "if-modified-since", "range")
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
)


class RuntimeUnreachable(Exception):
    """Nothing listens there: the runtime has not started its server or has closed it."""


class RuntimeSilent(Exception):
    """The runtime's server accepted but did not answer in time: the process is stopped or stuck."""


async def forward(address: RuntimeAddress, request: HttpRequest, timeout_s: float) -> HttpResponse:
    """The runtime's own answer to this GET or HEAD.

    Raises RuntimeUnreachable, or RuntimeSilent when the answer's head took over ``timeout_s``.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _ask(address, request, timeout_s)
    except asyncio.TimeoutError:
        raise RuntimeSilent from None
    except (OSError, h11.ProtocolError) as error:
        raise RuntimeUnreachable(str(error)) from error


async def _ask(address: RuntimeAddress, request: HttpRequest, timeout_s: float) -> HttpResponse:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    wire = h11.Connection(h11.CLIENT)
    try:
        headers = [("Host", f"{address.host}:{address.port}"), ("Connection", "close")]
        headers += [(n, request.headers[n]) for n in _FORWARDED if n in request.headers]
        head = h11.Request(method=request.method, target=request.target, headers=headers)
        writer.write(wire.send(head) or b"")
        wire.send(h11.EndOfMessage())
        await writer.drain()
        answer = await _next_event(wire, reader)
        if not isinstance(answer, h11.Response):
            raise h11.RemoteProtocolError("no response")
        # The head is there: what follows streams through at the client's pace.
        body = _body(wire, reader, writer, timeout_s)
        first = await anext(body, b"")
    except BaseException:
        writer.close()
        raise
    return HttpResponse(
        status=answer.status_code,
        headers=_kept(answer),
        body=_joined(first, body),
    )


async def _body(
    wire: h11.Connection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    timeout_s: float,
) -> AsyncIterator[bytes]:
    try:
        while True:
            async with asyncio.timeout(timeout_s):
                event = await _next_event(wire, reader)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise h11.RemoteProtocolError("the runtime's answer ended early")
    finally:
        writer.close()


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for chunk in rest:
        yield chunk


async def _next_event(wire: h11.Connection, reader: asyncio.StreamReader) -> object:
    while True:
        event = wire.next_event()
        if isinstance(event, h11.InformationalResponse):
            continue
        if event is not h11.NEED_DATA:
            return event
        wire.receive_data(await reader.read(65536))


def _kept(answer: h11.Response) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in answer.headers
        if name not in _HOP_BY_HOP
    }
