"""Which requests the load consists of: a fixed pool, the same for every run of one seed."""

from __future__ import annotations

import random
from enum import Enum
from typing import Any

import msgspec

# fmt: off
WORDS = [
    "the", "a", "small", "red", "blue", "old", "new", "river", "stone", "house", "tree",
    "garden", "winter", "summer", "morning", "night", "road", "bird", "horse", "child", "king",
    "letter", "song", "bread", "water", "fire", "cloud", "mountain", "sea", "ship", "window",
    "door", "tells", "walks", "sings", "finds", "keeps", "opens", "closes", "remembers",
    "carries", "asks", "and", "but", "because", "when", "under", "over",
]
# fmt: on


NEVER_MIGRATED_EVERY = 25


class Kind(str, Enum):
    """``GUIDED`` and ``SAMPLES`` (n > 1) are never migrated by the frontend: counted apart."""

    UNARY = "unary"
    STREAM = "stream"
    GUIDED = "guided"
    SAMPLES = "samples"


NEVER_MIGRATED = frozenset({Kind.GUIDED, Kind.SAMPLES})


class Request(msgspec.Struct, frozen=True):
    number: int
    kind: Kind
    prompt: str
    max_tokens: int

    @property
    def streamed(self) -> bool:
        return self.kind is Kind.STREAM

    def body(self, model: str, *, logprobs: bool = False) -> dict[str, Any]:
        """For `/v1/completions`. Temperature 0: the same text whoever answers."""
        body: dict[str, Any] = {
            "model": model,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": 0,
            "stream": self.streamed,
        }
        if logprobs:
            body["logprobs"] = 2
        if self.kind is Kind.SAMPLES:
            # The frontend refuses n > 1 at temperature 0, so these texts are not comparable.
            body |= {"n": 2, "temperature": 1.0, "ignore_eos": True}
        if self.kind is Kind.GUIDED:
            body["guided_regex"] = "[a-z ]{1,40}"
        return body


def pool(seed: int, size: int, *, long_share: float = 0.03) -> list[Request]:
    """``size`` different requests: half of them streamed; 1 to 8 tokens, some 48 to 96; prompts of
    3 to 120 words."""
    dice = random.Random(seed)
    requests = []
    for number in range(size):
        kind = Kind.STREAM if number % 2 else Kind.UNARY
        if number % NEVER_MIGRATED_EVERY == 0:
            kind = (Kind.GUIDED, Kind.SAMPLES)[number // NEVER_MIGRATED_EVERY % 2]
        is_long = dice.random() < long_share
        tokens = dice.randint(48, 96) if is_long else dice.randint(1, 8)
        words = dice.choice((3, 10, 30, 120))
        prompt = " ".join(dice.choice(WORDS) for _ in range(words))
        requests.append(Request(number, kind, prompt, tokens))
    return requests
