"""Embedding requests: through the frontend, as calls of a bare engine, and how near they are."""

from __future__ import annotations

import base64
import math
import random
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.worker_types.bare import Call
from tests.support.client import OpenAIClient

Vectors = list[list[float]]
LEAST_COSINE = 0.999
"""bf16 in batches of another shape; the same kernels in the same shapes give the same bits."""
MOST_BETWEEN_TEXTS = 0.9
"""On average. Vectors that are all alike would agree whatever was computed."""
DIMENSIONS = 48
COMMON = "the quick brown fox "
WORDS = ("quick", "brown", "fox", "jumps", "over", "lazy", "dog", "near", "river", "bank")


class Question(msgspec.Struct, frozen=True):
    inputs: list[str] | list[list[int]]
    more: dict[str, Any] = {}

    def call(self) -> Call:
        """For `bare.embed`."""
        field = "text" if isinstance(self.inputs[0], str) else "input_ids"
        dimensions = {name: self.more[name] for name in ("dimensions",) if name in self.more}
        return {"method": "embed", "arguments": {field: self.inputs, **dimensions}}


def questions(*, shortened: bool) -> dict[str, Question]:
    texts = _texts(12)
    found = {
        "one text": Question(texts[:1]),
        "texts": Question(texts),
        "token lists": Question([[7, 8, 9], [11], list(range(20, 200))]),
        "base64": Question(texts[1:3], {"encoding_format": "base64"}),
    }
    if shortened:
        found["dimensions"] = Question(texts[:2], {"dimensions": DIMENSIONS})
    return found


def _texts(count: int) -> list[str]:
    """Of very different lengths, every other one with the same beginning."""
    draw = random.Random(3)
    return [
        COMMON * (index % 2) + " ".join(draw.choices(WORDS, k=draw.randint(1, 80)))
        for index in range(count)
    ]


def ask(client: OpenAIClient, model: str, question: Question) -> Vectors:
    body = {"model": model, "input": question.inputs, **question.more}
    reply = client.post("/v1/embeddings", body)
    if reply.status != 200:
        raise AssertionError(f"embeddings: {reply.status} {reply.text[:500]}")
    return [_floats(one["embedding"]) for one in reply.json()["data"]]


def _floats(value: Any) -> list[float]:
    if not isinstance(value, str):
        return [float(one) for one in value]
    raw = base64.b64decode(value)
    return list(struct.unpack(f"<{len(raw) // 4}f", raw))


def compare(found: Vectors, expected: Vectors) -> dict[str, Any]:
    """How near they are, and how near the expected ones are to each other."""
    pairs = list(zip(found, expected, strict=True))
    differences = [abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True)]
    others = [
        _cosine(one, other) for index, one in enumerate(expected) for other in expected[:index]
    ]
    return {
        "vectors": len(pairs),
        "length": sorted({len(one) for one in found}),
        "least_cosine": round(min(_cosine(*pair) for pair in pairs), 7),
        "largest_difference": float(f"{max(differences):.3g}"),
        "mean_cosine_between_inputs": round(sum(others) / len(others), 4) if others else None,
    }


def faults(compared: dict[str, dict[str, Any]]) -> list[str]:
    """What must not be, in words."""
    wrong = [
        f"{name}: cosine {one['least_cosine']}"
        for name, one in compared.items()
        if not one["least_cosine"] >= LEAST_COSINE
    ]
    alike = compared["texts"]["mean_cosine_between_inputs"]
    if not alike <= MOST_BETWEEN_TEXTS:
        wrong.append(f"different texts have vectors of cosine {alike}: nothing is shown by these")
    if "dimensions" in compared and compared["dimensions"]["length"] != [DIMENSIONS]:
        wrong.append(f"{DIMENSIONS} dimensions were asked for: {compared['dimensions']['length']}")
    return wrong


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    return dot / (math.hypot(*one) * math.hypot(*other))
