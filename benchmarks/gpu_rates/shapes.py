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


TARGET_SHAPES: tuple[Prefill | Decode, ...] = (
    Prefill(8, 4096),
    Prefill(1, 16384),
    Prefill(32, 512),
    Decode(1, 128),
    Decode(32, 128),
    Decode(128, 128),
)
# With a draft every running sequence keeps a state per draft token: fewer fit beside each other.
DRAFT_SHAPES: tuple[Prefill | Decode, ...] = (Prefill(8, 4096), Decode(1, 96), Decode(32, 96))
DRY_SHAPES: tuple[Prefill | Decode, ...] = (Prefill(2, 40), Decode(1, 8), Decode(2, 8))


class Timing(msgspec.Struct, frozen=True):
    """Milliseconds, a list for each round."""

    rounds_ms: tuple[tuple[float, ...], ...]

    @property
    def median_ms(self) -> float:
        return statistics.median(self._all())

    @property
    def low_ms(self) -> float:
        return min(self._all())

    @property
    def high_ms(self) -> float:
        return max(self._all())

    @property
    def round_medians_ms(self) -> list[float]:
        return [statistics.median(one) for one in self.rounds_ms]

    def record(self) -> dict[str, Any]:
        """As it is written down."""
        return {
            "median_ms": self.median_ms,
            "low_ms": self.low_ms,
            "high_ms": self.high_ms,
            "rounds_ms": [[round(one, 4) for one in ms] for ms in self.rounds_ms],
        }

    def _all(self) -> list[float]:
        return [one for ms in self.rounds_ms for one in ms]


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


def measure(engine: Any, shape: Prefill | Decode, repeats: int, seed: int = 0) -> list[float]:
    """A prefill's whole time, or a decode's time per token of one sequence without the prefill;
    milliseconds, one per repeat. Prompts differ between repeats and seeds."""
    samples_ms = []
    for turn in range(seed * repeats, (seed + 1) * repeats):
        if isinstance(shape, Prefill):
            ids = prompts(shape.batch, shape.tokens, turn)
            samples_ms.append(1000 * generate_s(engine, ids, 1)[0])
            continue
        ids = prompts(shape.batch, DECODE_PROMPT_TOKENS, turn)
        short_s, _ = generate_s(engine, ids, 1)
        long_s, made = generate_s(engine, ids, 1 + shape.tokens)
        per_sequence = made / shape.batch - 1
        samples_ms.append(1000 * (long_s - short_s) / per_sequence)
    return samples_ms
