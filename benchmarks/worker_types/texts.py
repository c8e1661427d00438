"""Completions of a diffusion language model, which has no log-probabilities to compare."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec

from benchmarks.worker_types.bare import Call
from tests.support.client import OpenAIClient


class Question(msgspec.Struct, frozen=True):
    prompt: str
    tokens: int

    def call(self) -> Call:
        """For `bare.complete`."""
        arguments = {"prompt": self.prompt, "max_tokens": self.tokens}
        return {"method": "complete", "arguments": arguments}


# Shorter than a block of four, inside one, and over many; answers that end inside a block.
PROMPTS = (
    "a",
    "The worker drains.",
    "one two three four five",
    "Hello world, how are you today? " * 12,
)
QUESTIONS = tuple(Question(prompt, tokens) for prompt in PROMPTS for tokens in (1, 4, 31))


def ask(client: OpenAIClient, model: str, question: Question) -> dict[str, Any]:
    reply = client.completion(
        model, question.prompt, max_tokens=question.tokens, temperature=0, ignore_eos=True
    )
    if reply.status != 200:
        raise AssertionError(f"completions: {reply.status} {reply.text[:500]}")
    body = reply.json()
    usage = {name: body["usage"][name] for name in ("prompt_tokens", "completion_tokens")}
    return {"text": body["choices"][0]["text"], **usage}


def compare(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> dict[str, Any]:
    pairs = list(zip(found, expected, strict=True))
    common = [_common(one["text"], other["text"]) for one, other in pairs]
    return {
        "answers": len(pairs),
        "identical": sum(one == other for one, other in pairs),
        "same_counts": sum(_counts(one) == _counts(other) for one, other in pairs),
        "characters": sum(len(other["text"]) for _, other in pairs),
        "common_characters": sum(common),
        "different_texts": len({other["text"] for _, other in pairs}),
    }


def faults(compared: dict[str, Any]) -> list[str]:
    """What must not be, in words. One request at a time runs in the same shapes on both sides."""
    answers = compared["answers"]
    wrong = [
        f"{compared[name]} of {answers} answers have the {what} of the bare engine"
        for name, what in (("identical", "text"), ("same_counts", "token counts"))
        if compared[name] != answers
    ]
    if compared["different_texts"] < len(PROMPTS):
        wrong.append(f"only {compared['different_texts']} different texts: the prompts do nothing")
    return wrong


def _counts(answer: dict[str, Any]) -> tuple[int, int]:
    return answer["prompt_tokens"], answer["completion_tokens"]


def _common(one: str, other: str) -> int:
    """Characters until they part."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
