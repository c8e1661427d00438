from __future__ import annotations

import asyncio

import pytest
from sglang_worker.lifecycle.runtime_metrics import MetricsUnavailable, read_metrics


async def serve_once(answer: bytes) -> tuple[asyncio.Server, int]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    return server, server.sockets[0].getsockname()[1]


async def test_the_text_is_read_from_the_runtimes_server() -> None:
    server, port = await serve_once(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na 1\n")
    assert await read_metrics(lambda: ("0.0.0.0", port)) == "a 1\n"
    server.close()


async def test_another_status_is_no_metrics() -> None:
    server, port = await serve_once(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    with pytest.raises(MetricsUnavailable, match="503"):
        await read_metrics(lambda: ("127.0.0.1", port))
    server.close()


async def test_a_server_that_is_not_known_or_gone_is_an_error() -> None:
    with pytest.raises(MetricsUnavailable):
        await read_metrics(lambda: None)
    with pytest.raises(OSError):
        await read_metrics(lambda: ("127.0.0.1", 1))
