from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sglang_worker.lifecycle.completion import CompletionCheck, CompletionProbes
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.runtime_metrics import MetricsUnavailable, read_metrics

from tests.unit.lifecycle.fakes import IDLE_METRICS


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


class Arriving:
    """A connection whose answer comes when the test says so; ``asked_again``: a second one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader = asyncio.StreamReader()
        self.asked = asyncio.Event()
        self.asked_again = asyncio.Event()
        monkeypatch.setattr(asyncio, "open_connection", self._open)

    async def _open(self, host: str, port: int) -> tuple[asyncio.StreamReader, Arriving]:
        (self.asked_again if self.asked.is_set() else self.asked).set()
        return self.reader, self

    def write(self, data: bytes) -> None:
        """The question is of no interest."""

    def close(self) -> None:
        """Nothing is open."""

    async def read(self) -> str:
        return await read_metrics(lambda: ("127.0.0.1", 1))

    def answer_in_the_moment_of_a_cancellation(self, reading: asyncio.Task[Any], end: str) -> None:
        if end == "an answer":
            self.reader.feed_data(b"HTTP/1.1 200 OK\r\n\r\n" + IDLE_METRICS.encode())
            self.reader.feed_eof()
        else:
            self.reader.set_exception(ConnectionResetError())
        reading.cancel()


ENDS = pytest.mark.parametrize("end", ["an answer", "an error"])


@ENDS
async def test_a_reading_that_is_cancelled_as_it_ends_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    arriving = Arriving(monkeypatch)
    reading = asyncio.create_task(arriving.read())
    await arriving.asked.wait()
    arriving.answer_in_the_moment_of_a_cancellation(reading, end)
    await asyncio.wait({reading})
    assert reading.cancelled()


@ENDS
async def test_a_wait_for_completion_that_is_cancelled_as_a_reading_ends_asks_no_more(
    monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    arriving = Arriving(monkeypatch)
    gate = AdmissionGate()
    gate.close()
    check = CompletionCheck(gate, CompletionProbes(lambda: 0, lambda: 0, arriving.read))
    waiting = asyncio.create_task(check.wait(lambda reason: None))
    await arriving.asked.wait()
    arriving.answer_in_the_moment_of_a_cancellation(waiting, end)
    going_on = asyncio.create_task(arriving.asked_again.wait())
    try:
        await asyncio.wait({waiting, going_on}, return_when=asyncio.FIRST_COMPLETED)
        assert waiting.cancelled()
    finally:
        waiting.cancel()
        going_on.cancel()
