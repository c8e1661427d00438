"""Chat requests with images: answers with log-probabilities, and media that must be refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from benchmarks.tensor_parallel.agreement import Answer, answer_of, summary
from benchmarks.worker_types.bare import Call
from tests.e2e import multimodal_deployment as requests
from tests.support.client import OpenAIClient, Reply

MODEL = requests.MODEL
TOKENS = 24
# Larger than the model's bound, so that the processor resizes it: some 60 tokens.
LARGE = requests.image(requests.data_uri(requests.picture(9, 448, 336)))
CASES = {**requests.CASES, "large": [requests.QUESTION, LARGE]}
DIFFERING = ("one", "other")


def calls() -> list[Call]:
    """For `bare.chat`, in the order of the cases."""
    return [
        {
            "method": "chat",
            "arguments": {"messages": [{"role": "user", "content": parts}], "max_tokens": TOKENS},
        }
        for parts in CASES.values()
    ]


def ask_all(client: OpenAIClient) -> list[dict[str, Any]]:
    return [
        msgspec.to_builtins(_answer(name, _ask(client, parts))) for name, parts in CASES.items()
    ]


def _ask(client: OpenAIClient, parts: list[dict[str, Any]]) -> Reply:
    return requests.ask(
        client, parts, max_tokens=TOKENS, ignore_eos=True, logprobs=True, top_logprobs=2
    )


def _answer(name: str, reply: Reply) -> Answer:
    if reply.status != 200:
        raise AssertionError(f"{name}: {reply.status} {reply.text[:500]}")
    return answer_of(reply.json())


def is_answering(client: OpenAIClient) -> bool:
    """A frontend may list a model a little before its workers can be reached."""
    return requests.ask(client, [requests.QUESTION], max_tokens=1).status == 200


def refusals(client: OpenAIClient) -> dict[str, str]:
    """Each faulty request: "400, named", or what was wrong."""
    return {name: _refusal(client, *one) for name, one in requests.FAULTY.items()}


def _refusal(client: OpenAIClient, parts: list[dict[str, Any]], named: str) -> str:
    reply = requests.ask(client, parts)
    if reply.status == 400 and named in reply.text:
        return "400, named"
    return f"{reply.status}: {reply.text[:200]}"


def compare(found: list[Any], expected: list[Any]) -> dict[str, Any]:
    """Token by token; ``found`` and ``expected`` as `ask_all` and `bare.chat` give them."""
    answers, reference = (msgspec.convert(one, list[Answer]) for one in (found, expected))
    pairs = zip(answers, reference, strict=True)
    return {
        **summary(reference, answers),
        "same_prompt_tokens": sum(a.prompt_tokens == b.prompt_tokens for a, b in pairs),
    }


def faults(row: Mapping[str, Any]) -> list[str]:
    """What must not be, in words; ``row`` with answers, refusals and agreement."""
    wrong = [f"{name}: {one}" for name, one in row["refusals"].items() if one != "400, named"]
    one, other = (row["answers"][list(CASES).index(name)]["tokens"] for name in DIFFERING)
    if [token for token, *_ in one] == [token for token, *_ in other]:
        wrong.append("another image of the same size changes nothing")
    agreement = row["agreement"]
    if agreement["same_prompt_tokens"] != agreement["prompts"]:
        wrong.append(f"only {agreement['same_prompt_tokens']} prompts have as many tokens")
    if not agreement["agrees"]:
        wrong.append("answers part where the best tokens are far apart")
    return wrong
