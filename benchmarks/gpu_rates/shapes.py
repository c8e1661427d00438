"""What a row is timed on, and how a bare engine is timed."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any

import msgspec

VOCABULARY = 8000
DECODE_PROMPT_TOKENS = 64


class Prefill(msgspec.Struct, frozen=True):
    batch: int
    tokens: int

    @property
    def key(self) -> str:
        return f"prefill {self.batch}x{self.tokens}"


class Decode(msgspec.Struct, frozen=True):
    batch: int
    tokens: int

    @property
    def key(self) -> str:
        return f"decode {self.batch}"


DEVICE_SHAPES: tuple[Prefill | Decode, ...] = (
    Prefill(8, 4096),
    Prefill(1, 16384),
    Prefill(32, 512),
    Decode(1, 128),
    Decode(32, 128),
    Decode(128, 128),
)
DRY_SHAPES: tuple[Prefill | Decode, ...] = (Prefill(2, 40), Decode(1, 8), Decode(2, 8))


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds: median, smallest and largest of the repeats."""

    median_ms: float
    low_ms: float
    high_ms: float


def prompts(batch: int, tokens: int, seed: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    chance = random.Random(seed)
    return [[chance.randrange(3, vocabulary) for _ in range(tokens)] for _ in range(batch)]


def generate_s(engine: Any, ids: list[list[int]], new_tokens: int) -> tuple[float, int]:
    """Seconds of one batch, and the tokens that came out."""
    options = {"max_new_tokens": new_tokens, "temperature": 0.0, "ignore_eos": True}
    began_s = time.perf_counter()
    answers = engine.generate(input_ids=ids, sampling_params=options)
    spent_s = time.perf_counter() - began_s
    return spent_s, sum(answer["meta_info"]["completion_tokens"] for answer in answers)


def measure(engine: Any, shape: Prefill | Decode, repeats: int) -> Timing:
    """A prefill's whole time, or a decode's time per token of one sequence, prefill excluded."""
    samples_ms = []
    for turn in range(repeats):
        if isinstance(shape, Prefill):
            ids = prompts(shape.batch, shape.tokens, turn)
            samples_ms.append(1000 * generate_s(engine, ids, 1)[0])
            continue
        ids = prompts(shape.batch, DECODE_PROMPT_TOKENS, turn)
        short_s, _ = generate_s(engine, ids, 1)
        long_s, made = generate_s(engine, ids, 1 + shape.tokens)
        per_sequence = made / shape.batch - 1
        samples_ms.append(1000 * (long_s - short_s) / per_sequence)
    return Timing(statistics.median(samples_ms), min(samples_ms), max(samples_ms))
