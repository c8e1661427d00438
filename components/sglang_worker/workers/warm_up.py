"""The worker's first requests, before anybody knows it: kernels compile and pools fill then.

On a GPU the first request otherwise waits for compilers (tens of seconds). It is sent through the
worker's own handler, marked as probes are, so it counts nowhere and meets no gate. Engines that
never answer it never get registered.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sglang_worker.errors import WorkerError
from sglang_worker.observability.health.probe import Asked, Probe
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.workers.health import marked

# Above any compiler; below the half hour that a startup probe grants.
TIMEOUT_S = 900.0
LONG_PROMPT_TOKENS = 384
SHORT_PROMPT_TOKENS = 12
NEW_TOKENS = 4
# Ordinary text sits low in every vocabulary; placeholders of media sit at its end.
FIRST_TOKEN, TOKEN_RANGE = 5, 2000

logger = logging.getLogger(__name__)


class WarmUpError(WorkerError):
    """The engine started and cannot serve; the message says what its first request met."""


def generation_rounds(limits: EngineLimits, key: str) -> list[Mapping[str, Any]]:
    """Greedy and sampled generation with a short and a long prompt: prefill, extension, decode
    and sampling kernels differ."""
    room = max(1, limits.usable_context - NEW_TOKENS - 2)
    plans = (
        (SHORT_PROMPT_TOKENS, {"temperature": 0.0}),
        (LONG_PROMPT_TOKENS, {"temperature": 0.8, "top_p": 0.9, "top_k": 20}),
    )
    return [
        marked(_request(min(length, room), sampling, limits.vocab_size), key)
        for length, sampling in plans
    ]


def _request(length: int, sampling: Mapping[str, float], vocab_size: int) -> dict[str, Any]:
    low = min(FIRST_TOKEN, vocab_size - 1)
    span = max(1, min(vocab_size // 2, TOKEN_RANGE) - low)
    return {
        # No prefix of the other prompts, so that nothing is taken from the cache.
        "token_ids": [low + (7 * index + length) % span for index in range(length)],
        "stop_conditions": {"max_tokens": NEW_TOKENS, "ignore_eos": True},
        "sampling_options": dict(sampling),
        "output_options": {},
        "eos_token_ids": [],
        "annotations": [],
    }


async def send_first(
    asked: Callable[[Mapping[str, Any]], Asked],
    rounds: Sequence[Mapping[str, Any]],
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Send every round to every data-parallel rank at once, one round after the other.

    ``asked`` makes the probe of a payload. Raises WarmUpError for the first answer that is not a
    normal one, and after ``timeout_s``; then nothing of it is left under way.
    """
    began_s = time.monotonic()
    for payload in rounds:
        left_s = timeout_s - (time.monotonic() - began_s)
        await _round(asked(payload), left_s, timeout_s)
    logger.info("warmed up in %.1f s", time.monotonic() - began_s)


async def _round(asked: Asked, left_s: float, timeout_s: float) -> None:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[str | None]] = [loop.create_future() for _ in range(asked.ranks)]
    probes = [Probe(asked, rank, _tell(end)) for rank, end in enumerate(ends)]
    try:
        _, pending = await asyncio.wait(ends, timeout=max(0.0, left_s))
        for rank, end in enumerate(ends):
            where = f" on data-parallel rank {rank}" if asked.ranks > 1 else ""
            if end in pending:
                raise WarmUpError(f"the warm-up request{where} did not end within {timeout_s:g} s")
            if (reason := end.result()) is not None:
                raise WarmUpError(f"the warm-up request{where} failed: {reason}")
    finally:
        for probe in probes:
            probe.abort()


def _tell(end: asyncio.Future[str | None]) -> Callable[[str | None], None]:
    def tell(reason: str | None) -> None:
        if not end.done():
            end.set_result(reason)

    return tell
