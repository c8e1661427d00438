"""A small blocking client for the frontend's OpenAI API and the worker's system listener.

Only the standard library: it can hang up at an exact token, which pooled clients make hard, and
call it from ``asyncio.to_thread`` or a thread pool for load.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec


class Reply(msgspec.Struct, frozen=True):
    """One whole HTTP answer; header names are lower case."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        return json.loads(self.body)


class StreamEvent(msgspec.Struct, frozen=True):
    """One server-sent event: ``event`` is "data" unless the server named it; ``data`` is parsed."""

    event: str
    data: Any


class StreamResult(msgspec.Struct, frozen=True):
    """A streamed answer, put together. ``complete`` is true only after the ``[DONE]`` marker."""

    status: int
    text: str
    chunks: list[dict[str, Any]]
    errors: list[Any]
    complete: bool

    @property
    def finish_reason(self) -> str | None:
        reasons = [
            choice.get("finish_reason")
            for chunk in self.chunks
            for choice in chunk.get("choices", [])
            if choice.get("finish_reason")
        ]
        return reasons[-1] if reasons else None

    @property
    def usage(self) -> dict[str, Any] | None:
        found = [chunk["usage"] for chunk in self.chunks if chunk.get("usage")]
        return found[-1] if found else None


def parse_events(lines: Iterator[bytes]) -> Iterator[StreamEvent]:
    """Server-sent events out of raw lines; comments are skipped, ``[DONE]`` arrives as data."""
    name = "data"
    payload: list[str] = []
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if payload or name != "data":
                yield StreamEvent(name, _decode("\n".join(payload)))
            name, payload = "data", []
        elif line.startswith(":"):
            # The frontend puts error texts of an `event: error` into a comment line.
            if name != "data":
                payload.append(line[1:].strip())
        else:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "event":
                name = value
            elif field == "data":
                payload.append(value)


def _decode(payload: str) -> Any:
    try:
        return json.loads(payload)
    except ValueError:
        return payload


class Stream:
    """An open streaming answer; iterate it, or ``close`` it to hang up at once."""

    def __init__(self, connection: http.client.HTTPConnection, response: Any) -> None:
        self._connection = connection
        self._response = response
        self.status = int(response.status)

    def __iter__(self) -> Iterator[StreamEvent]:
        return parse_events(iter(self._response.readline, b""))

    def body(self) -> bytes:
        return bytes(self._response.read())

    def close(self) -> None:
        """Closes the socket under the response, unread bytes or not: the peer sees a disconnect."""
        raw = self._connection.sock
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_RDWR)
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HttpClient:
    """Plain requests against one base URL; nothing is retried and nothing is pooled."""

    def __init__(
        self, base_url: str, *, timeout_s: float = 120.0, token: str | None = None
    ) -> None:
        parts = urlsplit(base_url)
        self.base_url = base_url
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._timeout_s = timeout_s
        self._token = token

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> Stream:
        """``body``: bytes as they are, everything else as JSON; ``header_name=`` adds a header."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self._token is not None:
            sent.setdefault("Authorization", f"Bearer {self._token}")
        payload: bytes | None = None
        if body is not None:
            payload = body if isinstance(body, bytes) else json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, payload, sent)
            return Stream(connection, connection.getresponse())
        except BaseException:
            connection.close()
            raise

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        with self.open(method, path, body, **headers) as stream:
            names = {name.lower(): value for name, value in stream._response.getheaders()}
            return Reply(stream.status, names, stream.body())

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return self.request("POST", path, body, **headers)


class OpenAIClient(HttpClient):
    """Chat and plain completions, whole or streamed; ``options`` are request body fields."""

    def models(self) -> list[str]:
        reply = self.get("/v1/models")
        return (
            [entry["id"] for entry in reply.json().get("data", [])] if reply.status == 200 else []
        )

    def chat(self, model: str, prompt: str, **options: Any) -> Reply:
        return self.post("/v1/chat/completions", chat_body(model, prompt, **options))

    def completion(self, model: str, prompt: str, **options: Any) -> Reply:
        return self.post("/v1/completions", {"model": model, "prompt": prompt, **options})

    def open_chat(self, model: str, prompt: str, **options: Any) -> Stream:
        body = {**chat_body(model, prompt, **options), "stream": True}
        return self.open("POST", "/v1/chat/completions", body)

    def stream_chat(
        self, model: str, prompt: str, *, disconnect_after: int | None = None, **options: Any
    ) -> StreamResult:
        """Reads a streamed chat answer; with ``disconnect_after`` hangs up after that many chunks
        with content (0: as soon as the response has begun)."""
        with self.open_chat(model, prompt, **options) as stream:
            return collect(stream, disconnect_after=disconnect_after)


def chat_body(model: str, prompt: str, **options: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": prompt}], **options}


def collect(stream: Stream, *, disconnect_after: int | None = None) -> StreamResult:
    if stream.status != 200:
        return StreamResult(stream.status, "", [], [_decode(stream.body().decode())], False)
    text: list[str] = []
    chunks: list[dict[str, Any]] = []
    errors: list[Any] = []
    complete = False
    if disconnect_after == 0:
        return StreamResult(stream.status, "", chunks, errors, complete)
    for event in stream:
        if event.data == "[DONE]":
            complete = True
        elif event.event != "data" or not isinstance(event.data, dict) or "error" in event.data:
            errors.append(event.data)
        else:
            chunks.append(event.data)
            text.extend(_content(event.data))
        if disconnect_after is not None and len(text) >= disconnect_after:
            break
    return StreamResult(stream.status, "".join(text), chunks, errors, complete)


def _content(chunk: dict[str, Any]) -> list[str]:
    """Text pieces of a chat or completion chunk; the role-only first chunk carries none."""
    pieces = []
    for choice in chunk.get("choices", []):
        delta = choice.get("delta") or {}
        piece = delta.get("content") or choice.get("text")
        if piece:
            pieces.append(piece)
    return pieces
