"""A small asyncio HTTP/1.1 client: one connection per request, cheap enough to load two cores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec


class Answer(msgspec.Struct, frozen=True):
    """``status`` and headers; the body is read through `Exchange`."""

    status: int
    headers: Mapping[str, str]


class Exchange:
    """One request on one connection. Use as ``async with Exchange(...) as exchange``."""

    def __init__(self, host: str, port: int, path: str, body: Mapping[str, Any]) -> None:
        self._where = (host, port)
        self._path = path
        self._payload = json.dumps(body).encode()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Exchange:
        self._reader, self._writer = await asyncio.open_connection(*self._where, limit=1 << 20)
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._where[0]}\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(self._payload)}\r\n\r\n"
        )
        self._writer.write(head.encode() + self._payload)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    async def answer(self) -> Answer:
        assert self._reader is not None
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        return Answer(int(first.split(" ", 2)[1]), headers)

    async def body(self, answer: Answer) -> bytes:
        return b"".join([piece async for piece in self.pieces(answer)])

    async def pieces(self, answer: Answer) -> AsyncIterator[bytes]:
        """The body as it arrives, chunked encoding taken off."""
        assert self._reader is not None
        if answer.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
        elif "content-length" in answer.headers:
            yield await self._reader.readexactly(int(answer.headers["content-length"]))
        else:
            yield await self._reader.read(-1)


async def events(pieces: AsyncIterator[bytes]) -> AsyncIterator[tuple[str, str]]:
    """Server-sent events as (name, data). The frontend carries the text of an ``error`` event in a
    comment line, which counts as its data."""
    rest = b""
    async for piece in pieces:
        rest += piece
        while (end := rest.find(b"\n\n")) >= 0:
            block, rest = rest[:end], rest[end + 2 :]
            name, data = "data", []
            for line in block.decode().split("\n"):
                field, _, value = line.partition(":")
                if field == "event":
                    name = value.strip()
                elif field in ("data", ""):
                    data.append(value.strip())
            yield name, "\n".join(data)
