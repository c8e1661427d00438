"""What a client may do to others of the same server, seen from within its loop."""

from __future__ import annotations

import asyncio
import socket

from sglang_worker.system.http import HttpLimits, HttpRequest, HttpResponse, HttpServer

CALLS = 50


async def test_calls_that_arrive_together_make_way_for_others_in_between() -> None:
    turns, seen = 0, list[int]()

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def handle(request: HttpRequest) -> HttpResponse:
        seen.append(turns)
        return HttpResponse(status=200)

    listening = socket.create_server(("127.0.0.1", 0))
    server = await HttpServer(handle, HttpLimits()).serve(listening)
    counting = asyncio.create_task(count_turns())
    try:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * CALLS)
        writer.write_eof()
        await reader.read(-1)
        writer.close()
    finally:
        counting.cancel()
        server.close()
    assert len(set(seen)) == CALLS


async def test_a_body_that_is_there_already_is_too_late_after_its_time() -> None:
    late = HttpLimits(body_total_timeout_s=0.0)
    body = b"b" * 40_000  # more than the server takes along with a head

    async def handle(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=200, body=await request.read_body(1 << 20))

    listening = socket.create_server(("127.0.0.1", 0))
    server = await HttpServer(handle, late).serve(listening)
    try:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        writer.write_eof()
        answer = await reader.read(-1)
        writer.close()
    finally:
        server.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
