"""Streaming chat answers by the dozen, and when their chunks came."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import msgspec

EVENT = b"data: {"
WORDS = ("sea", "egg", "compiler", "river", "bread", "light", "garden", "winter", "paper", "stone")


class Load(msgspec.Struct, frozen=True):
    """``streams`` requests at once; ``prompt_words`` about as many tokens."""

    name: str
    streams: int
    prompt_words: int
    new_tokens: int


class Answer(msgspec.Struct, frozen=True):
    """``arrivals_s``: of each chunk, counted from the request."""

    arrivals_s: tuple[float, ...]
    tokens: int


class Round(msgspec.Struct, frozen=True):
    """One load once. Gaps are between two chunks of one answer; CPU is the serving process's."""

    requests_per_s: float
    tokens_per_s: float
    first_p50_ms: float
    first_p99_ms: float
    gap_p50_ms: float
    gap_p99_ms: float
    chunks_per_token: float
    cpu_us_per_token: float = 0.0


def prompt(load: Load, turn: int, number: int) -> str:
    """A prompt of its own from its first word on: a cached prefix would flatter the rate."""
    words = (WORDS[(turn * 7 + number * 3 + place) % len(WORDS)] for place in range(10**9))
    return f"({turn}.{number}) " + " ".join(next(words) for _ in range(load.prompt_words))


async def answer(
    session: aiohttp.ClientSession, url: str, model: str, text: str, new_tokens: int
) -> Answer:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": new_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began_s = time.monotonic()
    arrivals: list[float] = []
    tail = b""
    async with session.post(f"{url}/v1/chat/completions", json=body) as response:
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {await response.text()}")
        async for data in response.content.iter_any():
            now_s = time.monotonic() - began_s
            arrivals += [now_s] * data.count(EVENT)
            tail = (tail + data)[-8192:]
    # The last event is the usage alone.
    return Answer(tuple(arrivals[:-1]), usage(tail)["completion_tokens"])


def usage(tail: bytes) -> dict[str, Any]:
    for line in reversed(tail.split(b"\n")):
        if line.startswith(EVENT) and b'"usage":{' in line.replace(b" ", b""):
            found: dict[str, Any] = json.loads(line[len("data: ") :])["usage"]
            return found
    raise RuntimeError(f"a stream without usage ended in {tail[-300:]!r}")


async def play(url: str, model: str, load: Load, turn: int) -> Round:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=180)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        began_s = time.monotonic()
        answers = await asyncio.gather(
            *(
                answer(session, url, model, prompt(load, turn, number), load.new_tokens)
                for number in range(load.streams)
            )
        )
        spent_s = time.monotonic() - began_s
    short = [one.tokens for one in answers if one.tokens != load.new_tokens]
    if short:
        raise RuntimeError(f"answers of {short} tokens instead of {load.new_tokens}")
    return summary(answers, spent_s)


def summary(answers: Sequence[Answer], spent_s: float) -> Round:
    tokens = sum(one.tokens for one in answers)
    firsts = [one.arrivals_s[0] for one in answers]
    gaps = [
        later - earlier
        for one in answers
        for earlier, later in zip(one.arrivals_s, one.arrivals_s[1:], strict=False)
    ]
    return Round(
        requests_per_s=len(answers) / spent_s,
        tokens_per_s=tokens / spent_s,
        first_p50_ms=1000 * statistics.median(firsts),
        first_p99_ms=1000 * highest(firsts),
        gap_p50_ms=1000 * statistics.median(gaps),
        gap_p99_ms=1000 * highest(gaps),
        chunks_per_token=sum(len(one.arrivals_s) for one in answers) / tokens,
    )


def highest(values: Sequence[float]) -> float:
    """The 99th percentile; of few values the largest."""
    return statistics.quantiles(values, n=100)[98] if len(values) >= 100 else max(values)
