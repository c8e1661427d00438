"""Greedy answers of one configuration against those of another, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

TOLERANCE_NATS = 0.3
"""Two runs agree when they differ only where the first one's two best tokens are this close."""


class Answer(msgspec.Struct, frozen=True):
    """``tokens``: (text, its log-probability, distance to the other of the two best)."""

    prompt_tokens: int
    tokens: tuple[tuple[str, float, float], ...]


class Agreement(msgspec.Struct, frozen=True):
    """``gap_nats``: how far the reference's two best tokens were apart where the runs part."""

    tokens: int
    common: int
    largest_difference_nats: float
    gap_nats: float | None

    @property
    def agrees(self) -> bool:
        return self.gap_nats is None or self.gap_nats <= TOLERANCE_NATS


def answer_of(body: dict[str, Any]) -> Answer:
    """From a chat answer with ``logprobs`` and ``top_logprobs`` 2."""
    tokens = []
    for entry in body["choices"][0]["logprobs"]["content"]:
        top = sorted((one["logprob"] for one in entry["top_logprobs"]), reverse=True)
        gap = top[0] - top[1] if len(top) > 1 else float("inf")
        tokens.append((entry["token"], float(entry["logprob"]), float(gap)))
    return Answer(body["usage"]["prompt_tokens"], tuple(tokens))


def compare(reference: Answer, other: Answer) -> Agreement:
    common = 0
    largest = 0.0
    pairs = zip(reference.tokens, other.tokens, strict=False)
    for (text, logprob, _), (other_text, other_logprob, _) in pairs:
        if text != other_text:
            break
        common += 1
        largest = max(largest, abs(logprob - other_logprob))
    whole = common == len(reference.tokens) == len(other.tokens)
    if whole:
        gap = None
    elif common < len(reference.tokens):
        gap = reference.tokens[common][2]
    else:
        gap = float("inf")  # one answer is longer than the other
    return Agreement(len(reference.tokens), common, largest, gap)


def summary(reference: Sequence[Answer], others: Sequence[Answer]) -> dict[str, Any]:
    """All prompts in one row of the table."""
    found = [compare(one, other) for one, other in zip(reference, others, strict=True)]
    return {
        "prompts": len(found),
        "tokens": sum(one.tokens for one in found),
        "common_tokens": sum(one.common for one in found),
        "identical": sum(one.gap_nats is None for one in found),
        "largest_difference_nats": round(max(one.largest_difference_nats for one in found), 4),
        "gaps_where_parted_nats": [
            round(one.gap_nats, 4) for one in found if one.gap_nats is not None
        ],
        "agrees": all(one.agrees for one in found),
    }
