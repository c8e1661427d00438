"""Sends one request and reports everything that can be wrong with its answer."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import msgspec

from benchmarks.drain_proof.http import Exchange, events
from benchmarks.drain_proof.plan import Request

TIMEOUT_S = 120.0
PATH = "/v1/completions"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """``error`` None: an HTTP 200 whose stream, if any, ended with ``[DONE]``.

    ``texts`` and ``finish_reasons`` are by choice; ``gaps`` (first choice, reference run only) the
    difference of the two best log-probabilities per token, with ``pieces`` the token texts.
    """

    error: str | None = None
    texts: tuple[str, ...] = ()
    finish_reasons: tuple[str | None, ...] = ()
    pieces: tuple[str, ...] = ()
    gaps: tuple[float, ...] = ()
    last_byte_s: float = 0.0


class _Choices:
    """Puts choices together, whole or in pieces."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.reasons: dict[int, str | None] = {}
        self.pieces: list[str] = []
        self.gaps: list[float] = []

    def add(self, body: dict[str, Any]) -> None:
        for choice in body.get("choices", []):
            index = choice.get("index", 0)
            self.texts[index] = self.texts.get(index, "") + (choice.get("text") or "")
            self.reasons[index] = choice.get("finish_reason") or self.reasons.get(index)
            if index == 0 and choice.get("logprobs"):
                self._add_logprobs(choice["logprobs"])

    def _add_logprobs(self, logprobs: dict[str, Any]) -> None:
        self.pieces += logprobs.get("tokens") or []
        for top in logprobs.get("top_logprobs") or []:
            best = sorted((top or {}).values(), reverse=True)[:2]
            self.gaps.append(best[0] - best[1] if len(best) == 2 else 0.0)

    def result(self) -> Result:
        order = sorted(self.texts)
        return Result(
            texts=tuple(self.texts[index] for index in order),
            finish_reasons=tuple(self.reasons[index] for index in order),
            pieces=tuple(self.pieces),
            gaps=tuple(self.gaps),
            last_byte_s=time.monotonic(),
        )


async def ask(port: int, request: Request, model: str, *, logprobs: bool = False) -> Result:
    """Never raises: whatever goes wrong is the result's error."""
    body = request.body(model, logprobs=logprobs)
    try:
        return await asyncio.wait_for(_exchange(port, request, body), TIMEOUT_S)
    except asyncio.TimeoutError:
        return Result(error=f"no answer within {TIMEOUT_S:g} s")
    except (OSError, EOFError, ValueError, asyncio.IncompleteReadError) as error:
        return Result(error=f"{type(error).__name__}: {error}"[:200])


async def _exchange(port: int, request: Request, body: dict[str, Any]) -> Result:
    choices = _Choices()
    async with Exchange("127.0.0.1", port, PATH, body) as exchange:
        answer = await exchange.answer()
        if answer.status != 200:
            text = (await exchange.body(answer)).decode(errors="replace")
            return Result(error=f"HTTP {answer.status}: {text}"[:200])
        if not request.streamed:
            choices.add(json.loads(await exchange.body(answer)))
            return choices.result()
        done = False
        async for name, data in events(exchange.pieces(answer)):
            if data == "[DONE]":
                done = True
                break
            if name != "data":
                return Result(error=f"SSE {name}: {data}"[:200])
            if not data:
                continue
            piece = json.loads(data)
            if "error" in piece:
                return Result(error=f"SSE error: {data}"[:200])
            choices.add(piece)
    return choices.result() if done else Result(error="the stream ended without [DONE]")
