"""A load generator of several processes: token prompts to /v1/completions, answers counted.

Chunks are counted by their bytes, not parsed: the generator must not become what is measured.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import msgspec

PROCESSES = 4


class Share(msgspec.Struct, frozen=True):
    """What one process sends at once."""

    url: str
    model: str
    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int
    stream: bool
    start_at_s: float


class Outcome(msgspec.Struct, frozen=True):
    """On the monotonic clock; ``first_s`` is empty for unary requests."""

    began_s: float
    ended_s: float
    tokens: int
    first_s: tuple[float, ...]


class Load:
    """Keeps its processes between rounds: starting them would be measured otherwise."""

    def __init__(self, url: str, model: str) -> None:
        self._url = url
        self._model = model
        self._pool = ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"))

    def close(self) -> None:
        self._pool.shutdown()

    def round(self, prompts: list[list[int]], new_tokens: int, *, stream: bool) -> Outcome:
        """Send every prompt at the same moment; returns when the last answer is whole."""
        start_at_s = time.monotonic() + 0.1
        shares = [
            Share(
                f"{self._url}/v1/completions",
                self._model,
                tuple(tuple(one) for one in prompts[index::PROCESSES]),
                new_tokens,
                stream,
                start_at_s,
            )
            for index in range(min(PROCESSES, len(prompts)))
        ]
        outcomes = list(self._pool.map(run_share, shares))
        return Outcome(
            start_at_s,
            max(one.ended_s for one in outcomes),
            sum(one.tokens for one in outcomes),
            tuple(first for one in outcomes for first in one.first_s),
        )


def first_median_ms(outcome: Outcome) -> float | None:
    if not outcome.first_s:
        return None
    return 1000 * statistics.median(first - outcome.began_s for first in outcome.first_s)


def run_share(share: Share) -> Outcome:
    return asyncio.run(_run(share))


async def _run(share: Share) -> Outcome:
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.sleep(max(0.0, share.start_at_s - time.monotonic()))
        parts = await asyncio.gather(*(_one(session, share, ids) for ids in share.prompts))
    return Outcome(
        share.start_at_s,
        time.monotonic(),
        sum(tokens for tokens, _ in parts),
        tuple(first for _, first in parts if first is not None),
    )


async def _one(session: object, share: Share, ids: tuple[int, ...]) -> tuple[int, float | None]:
    """Tokens by the answer's own usage, and when its first bytes came."""
    body = {
        "model": share.model,
        "prompt": list(ids),
        "max_tokens": share.new_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": share.stream,
    }
    if share.stream:
        body["stream_options"] = {"include_usage": True}
    first_s = None
    tail = b""
    async with session.post(share.url, json=body) as response:  # type: ignore[attr-defined]
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {await response.text()}")
        async for data in response.content.iter_any():
            if first_s is None:
                first_s = time.monotonic()
            # The usage is in the last chunk.
            tail = (tail + data)[-4096:] if share.stream else tail + data
    return _usage(tail, share.stream), first_s if share.stream else None


def _usage(tail: bytes, stream: bool) -> int:
    if not stream:
        return int(json.loads(tail)["usage"]["completion_tokens"])
    for line in reversed(tail.split(b"\n")):
        if line.startswith(b"data: {") and b'"usage":{' in line:
            return int(json.loads(line[6:])["usage"]["completion_tokens"])
    raise RuntimeError(f"a stream without usage ended in {tail[-300:]!r}")
