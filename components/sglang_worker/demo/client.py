"""The demo's two clients: the frontend's OpenAI API and the worker's system port (stdlib only)."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from sglang_worker.demo.processes import DemoFailure

HOST = "127.0.0.1"


class Answer(msgspec.Struct, frozen=True):
    """One chat completion: its text, tokens and timing."""

    text: str
    finish_reason: str | None
    completion_tokens: int
    seconds: float
    first_token_s: float | None = None

    @property
    def tokens_per_second(self) -> float:
        """Of the whole request, prefill included."""
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0


def get_json(port: int, path: str, timeout_s: float = 5.0) -> tuple[int, Any]:
    """GET; returns (0, None) while nothing answers there yet."""
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()
    try:
        return response.status, json.loads(body)
    except ValueError:
        return response.status, None


def models(port: int) -> list[str]:
    """Return the names of the models that the frontend serves."""
    status, body = get_json(port, "/v1/models")
    if status != 200 or not isinstance(body, dict):
        return []
    return [str(entry.get("id")) for entry in body.get("data", [])]


def chat_body(model: str, question: str, stream: bool) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 128,
        "temperature": 0,
    }
    if stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return body


def ask(port: int, model: str, question: str, timeout_s: float = 60.0) -> Answer:
    """Send one chat completion and wait for the whole answer."""
    started = time.monotonic()
    with _post(port, chat_body(model, question, stream=False), timeout_s) as response:
        body = json.loads(response.read())
    choice = body["choices"][0]
    return Answer(
        text=choice["message"].get("content") or "",
        finish_reason=choice.get("finish_reason"),
        completion_tokens=body["usage"]["completion_tokens"],
        seconds=time.monotonic() - started,
    )


def ask_streaming(
    port: int,
    model: str,
    question: str,
    on_text: Callable[[str], None],
    timeout_s: float = 60.0,
) -> Answer:
    """Send one streaming chat completion; ``on_text`` gets each piece as it arrives."""
    started = time.monotonic()
    first_token_s: float | None = None
    pieces: list[str] = []
    finish_reason: str | None = None
    tokens = 0
    with _post(port, chat_body(model, question, stream=True), timeout_s) as response:
        for event in _events(response):
            if "error" in event:
                raise DemoFailure(f"the stream ended with an error: {event['error']}")
            if usage := event.get("usage"):
                tokens = usage["completion_tokens"]
            for choice in event.get("choices") or ():
                finish_reason = choice.get("finish_reason") or finish_reason
                if piece := (choice.get("delta") or {}).get("content"):
                    first_token_s = first_token_s or time.monotonic() - started
                    pieces.append(piece)
                    on_text(piece)
    return Answer("".join(pieces), finish_reason, tokens, time.monotonic() - started, first_token_s)


def _post(port: int, body: Mapping[str, Any], timeout_s: float) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(HOST, port, timeout=timeout_s)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise DemoFailure(f"the frontend did not answer: {error}") from error
    if response.status != 200:
        text = response.read(2000).decode(errors="replace")
        raise DemoFailure(f"the frontend answered {response.status}: {text}")
    return response


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Parse server-sent events until ``[DONE]``; an ending without it is a failure."""
    failing = False
    for raw in response:
        line = raw.decode(errors="replace").rstrip("\r\n")
        if line.startswith("event: error"):
            failing = True
        elif failing and line:
            raise DemoFailure(f"the stream ended with an error: {line}")
        elif line == "data: [DONE]":
            return
        elif line.startswith("data: "):
            yield json.loads(line[6:])
    raise DemoFailure("the stream ended before it was complete")
