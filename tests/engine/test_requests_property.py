"""A thousand generated requests at one real engine: each is answered or refused, none sticks.

The requests are drawn by seed rather than by Hypothesis, so that they run side by side: an engine
that serves one request at a time would never meet its batching faults.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument

from tests.engine.request_host import Answer, FakeContext, RequestHost

pytestmark = pytest.mark.engine

REQUESTS = 1000
AT_ONCE = 20
ANSWER_S = 120.0

# Mostly sane values with strange ones mixed in, so that many requests get past validation.
NUMBERS: tuple[Any, ...] = (0, 0.0, 0.3, 1, 1.0, 2, -1, 0.999, 1e-9, 5, -2.5, 1e30)
STRANGE: tuple[Any, ...] = ("x", "", [], {}, [1], {"a": 1}, True, float("nan"), float("inf"))
SCHEMAS: tuple[Any, ...] = (
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    {"enum": ["left", "right", 3, None]},
    {"type": "string", "pattern": "^a{2,4}$"},
    {"type": "string", "pattern": "("},
    {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"n": {"$ref": "#"}}}}},
    {"$ref": "#"},
    {"anyOf": []},
    {"type": "object", "patternProperties": {"(": {}}},
    {"const": {"deep": [1, 2, {"a": None}]}},
    {"type": "number", "minimum": 5, "maximum": 1},
    {"type": "object", "required": ["a"], "properties": {}, "additionalProperties": False},
    {"not": {}},
    True,
    {},
)
REGEXES = ("a+", "(yes|no)", "[", "(?=a)b", "\\d{3}", "(a*)*b", "\\p{L}+", ".{0,20}", "a{5,2}")
GRAMMARS = (
    'root ::= "a" | "b"',
    "root ::=",
    'root ::= root "a"',
    "root ::= missing",
    'root ::= ("a" root)? ',
    'other ::= "a"',
)
TAGS = ({"type": "structural_tag"}, {"triggers": ["<"], "structures": []}, "{", [])


def some(rng: random.Random, values: tuple[Any, ...], strange: float = 0.06) -> Any:
    return rng.choice(STRANGE if rng.random() < strange else values)


def maybe(rng: random.Random, chance: float, section: dict[str, Any], key: str, value: Any) -> None:
    if rng.random() < chance:
        section[key] = value


def draw_request(rng: random.Random, vocabulary: int) -> dict[str, Any]:
    sampling: dict[str, Any] = {}
    for name in ("temperature", "top_p", "min_p"):
        maybe(rng, 0.4, sampling, name, some(rng, (*NUMBERS[:6], 0.9, 0.5)))
    for name in ("frequency_penalty", "presence_penalty", "repetition_penalty"):
        maybe(rng, 0.2, sampling, name, some(rng, (0.5, 1.0, 1.2, -1.0, 2.0, *NUMBERS)))
    maybe(rng, 0.3, sampling, "top_k", some(rng, (-1, 0, 1, 5, 50, 10**9)))
    maybe(rng, 0.3, sampling, "seed", some(rng, (0, 1, -7, 2**62)))
    maybe(rng, 0.2, sampling, "n", some(rng, (1, 2, 3)))
    if rng.random() < 0.25:
        sampling["guided_decoding"] = draw_constraint(rng)
    stops: dict[str, Any] = {"max_tokens": some(rng, (1, 2, 3, 5, 8, 0), 0.03)}
    maybe(rng, 0.2, stops, "min_tokens", some(rng, (0, 1, 2, 4, 9)))
    maybe(rng, 0.3, stops, "ignore_eos", some(rng, (True, False)))
    maybe(rng, 0.3, stops, "stop", some(rng, (["a"], [" "], ["the", "\n"], "e", ["é…"], None)))
    ids = [rng.randrange(vocabulary) for _ in range(rng.randrange(4))]
    maybe(rng, 0.3, stops, "stop_token_ids", some(rng, (ids, ids, [vocabulary], [-1], None)))
    maybe(rng, 0.3, stops, "stop_token_ids_hidden", [2, vocabulary + 5])
    output: dict[str, Any] = {}
    maybe(rng, 0.3, output, "logprobs", some(rng, (0, 1, 5, 20)))
    maybe(rng, 0.15, output, "prompt_logprobs", some(rng, (0, 1, 3)))
    routing: dict[str, Any] = {}
    maybe(rng, 0.1, routing, "priority", some(rng, (0, 3, -3)))
    maybe(rng, 0.1, routing, "dp_rank", some(rng, (0, 0, 1)))
    maybe(rng, 0.2, routing, "cache_salt", some(rng, ("a", "b", "ü")))
    size = rng.choice((1, 1, 2, 5, 20, 100, 300))
    prompt: Any = [rng.randrange(vocabulary) for _ in range(size)]
    if rng.random() < 0.03:
        prompt = rng.choice(([], None, "text", [vocabulary], [1, None], [3] * 5000))
    return {
        "model": "m",
        "token_ids": prompt,
        "sampling_options": sampling,
        "stop_conditions": stops,
        "output_options": output,
        "routing": routing,
    }


def draw_constraint(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(("json", "json", "regex", "choice", "grammar", "structural_tag"))
    values: dict[str, tuple[Any, ...]] = {
        "json": SCHEMAS,
        "regex": REGEXES,
        "choice": (["a", "b"], ["(", "[x"], ["é", "日本"], [""], []),
        "grammar": GRAMMARS,
        "structural_tag": TAGS,
    }
    return {kind: some(rng, values[kind], 0.1)}


@pytest.fixture(scope="module")
def host(checkpoint: Callable[[str], Path]) -> Iterator[RequestHost]:
    host = RequestHost(checkpoint("gdn"))
    yield host
    host.close()


async def outcome(host: RequestHost, request: dict[str, Any], hangs_up: bool) -> str:
    """How one request ended; whatever is not in the contract raises."""
    context = FakeContext()
    chunks: list[dict[str, Any]] = []
    try:
        async for chunk in host.handler.generate(request, context):
            chunks.append(chunk)
            if hangs_up:
                context.hang_up()
    except InvalidArgument:
        return "refused"
    except HttpError as error:
        assert 400 <= error.code < 500, f"{error} for {request}"
        return "refused"
    if hangs_up:
        return "left"
    check_answer(Answer(chunks), request)
    return "answered"


def check_answer(answer: Answer, request: dict[str, Any]) -> None:
    samples = request["sampling_options"].get("n") or 1
    wanted = request["stop_conditions"]["max_tokens"]
    for index in range(samples):
        mine = [chunk for chunk in answer.chunks if (chunk.get("index") or 0) == index]
        ends = [chunk for chunk in mine if chunk.get("finish_reason")]
        assert len(ends) == 1, request
        assert ends[0] is mine[-1], request
        assert ends[0]["finish_reason"] in ("stop", "length"), request
        assert len(answer.tokens(index)) <= wanted, request
        assert ends[0]["completion_usage"]["completion_tokens"] >= len(answer.tokens(index))
        if request["output_options"].get("logprobs") is not None:
            for chunk in mine:
                assert len(chunk.get("log_probs") or ()) == len(chunk["token_ids"]), request


def test_no_request_crashes_the_engine_or_stays_in_it(host: RequestHost) -> None:
    rng = random.Random(20)
    vocabulary = host.engine.limits.vocab_size
    places = asyncio.Semaphore(AT_ONCE)
    running: list[dict[str, Any]] = []

    async def one() -> str:
        request = draw_request(rng, vocabulary)
        async with places:
            work = outcome(host, request, hangs_up=rng.random() < 0.05)
            running.append(request)
            try:
                return await asyncio.wait_for(work, ANSWER_S)
            except asyncio.TimeoutError:
                raise AssertionError(f"no end after {ANSWER_S} s: {request}") from None
            except EngineShutdown:
                # One of those that ran side by side did it.
                raise AssertionError(f"{host.engine.death} with {running}") from None
            finally:
                running.remove(request)

    async def all_of_them() -> Counter[str]:
        return Counter(await asyncio.gather(*(one() for _ in range(REQUESTS))))

    counts = host.run(all_of_them())
    host.run(host.settled())
    assert host.held == 0
    assert host.gate.in_flight == 0
    assert host.handler.live_generations == 0
    # The mixture is worth something only when both sorts are well represented.
    assert counts["answered"] > REQUESTS // 4, counts
    assert counts["refused"] > REQUESTS // 10, counts
    answer = host.ask("Afterwards", stop_conditions={"max_tokens": 5, "ignore_eos": True})
    assert len(answer.tokens()) == 5
