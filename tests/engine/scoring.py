"""What an engine generated, and how it compares with transformers on the same weights."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import msgspec

from tests.engine.models import VOCABULARY
from tests.engine.transformers_host import TransformersHost


def random_tokens(count: int, seed: int = 0) -> list[int]:
    """Token ids without the special ones."""
    chooser = random.Random(seed)
    return [chooser.randrange(3, VOCABULARY) for _ in range(count)]


def chi_square_limit(degrees: int) -> float:
    """About the 99.99 % quantile (Wilson and Hilferty)."""
    part = 2 / (9 * degrees)
    return degrees * (1 - part + 3.72 * math.sqrt(part)) ** 3


class Generated(msgspec.Struct, frozen=True):
    """``prompt_logprobs`` is empty unless they were asked for; its first entry has no value."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    prompt_logprobs: list[float | None]
    cached_tokens: int
    accept_length: float | None


def generated(prompt: list[int], answer: dict[str, Any]) -> Generated:
    meta = answer["meta_info"]
    return Generated(
        prompt=prompt,
        tokens=answer["output_ids"],
        logprobs=[entry[0] for entry in meta.get("output_token_logprobs", ())],
        prompt_logprobs=[entry[0] for entry in meta.get("input_token_logprobs", ())],
        cached_tokens=meta.get("cached_tokens", 0),
        accept_length=meta.get("spec_accept_length"),
    )


class Comparison(msgspec.Struct, frozen=True):
    """Largest log-probability differences, and how far below transformers' best token the worst
    generated token lies (0: every greedy token is the same)."""

    output_difference: float
    prompt_difference: float
    worst_shortfall: float


def compare(
    host: TransformersHost, folder: Path, runs: list[Generated], dtype: str = "float32"
) -> list[Comparison]:
    scores = host.score(folder, [run.prompt + run.tokens for run in runs], dtype)
    results = []
    for run, score in zip(runs, scores, strict=True):
        first = len(run.prompt) - 1
        results.append(
            Comparison(
                output_difference=_largest(run.logprobs, score.logprobs[first:]),
                prompt_difference=_largest(run.prompt_logprobs[1:], score.logprobs[:first]),
                worst_shortfall=max(score.shortfalls[first:]),
            )
        )
    return results


def _largest(ours: list[Any], theirs: list[float]) -> float:
    pairs = zip(ours, theirs, strict=False)
    return max((abs(a - b) for a, b in pairs if a is not None), default=0.0)
