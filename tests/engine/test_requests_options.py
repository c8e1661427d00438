"""Every request option on the real engine, through the worker's own handler."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dynamo.llm.exceptions import InvalidArgument

from tests.engine.request_host import PROBE_KEY, RequestHost

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def host(checkpoint: Callable[[str], Path]) -> Iterator[RequestHost]:
    # Left free, the small model fills JSON with spaces.
    host = RequestHost(checkpoint("gdn"), "--constrained-json-disable-any-whitespace")
    yield host
    assert host.held == 0
    assert host.gate.in_flight == 0
    host.close()


def length(tokens: int, **more: Any) -> dict[str, Any]:
    return {"max_tokens": tokens, "ignore_eos": True, **more}


def test_an_answer_is_made_of_disjoint_chunks_with_one_end_and_exact_usage(
    host: RequestHost,
) -> None:
    answer = host.ask(stop_conditions=length(12))
    assert len(answer.tokens()) == 12
    assert len(answer.chunks) > 3
    assert [chunk.get("finish_reason") for chunk in answer.chunks[:-1]] == [None] * (
        len(answer.chunks) - 1
    )
    assert answer.finish_reason == "length"
    assert answer.usage["completion_tokens"] == 12
    assert answer.usage["prompt_tokens"] == len(host.prompt("The worker"))


def test_greedy_answers_are_the_same_whatever_streams_beside_them(host: RequestHost) -> None:
    import asyncio

    async def many() -> list[list[int]]:
        requests = [host.request(stop_conditions=length(16)) for _ in range(6)]
        return [a.tokens() for a in await asyncio.gather(*map(host.stream, requests))]

    alone = host.ask(stop_conditions=length(16)).tokens()
    assert host.run(many()) == [alone] * 6


def test_a_stop_token_ends_the_answer_and_is_reported(host: RequestHost) -> None:
    tokens = host.ask(stop_conditions=length(10)).tokens()
    target = tokens[4]
    answer = host.ask(stop_conditions={"max_tokens": 10, "stop_token_ids": [target]})
    assert answer.tokens() == tokens[: tokens.index(target) + 1]
    assert (answer.finish_reason, answer.last["stop_reason"]) == ("stop", target)


def test_a_hidden_stop_token_ends_the_answer_unreported(host: RequestHost) -> None:
    target = host.ask(stop_conditions=length(10)).tokens()[4]
    answer = host.ask(stop_conditions={"max_tokens": 10, "stop_token_ids_hidden": [target]})
    assert answer.finish_reason == "stop"
    assert "stop_reason" not in answer.last


def test_a_stop_string_ends_the_decoding_at_once(host: RequestHost) -> None:
    tokens = host.ask(stop_conditions=length(30)).tokens()
    text = host.tokenizer.decode(tokens[:10])
    answer = host.ask(stop_conditions={"max_tokens": 30, "stop": [text[-6:]]})
    assert answer.finish_reason == "stop"
    assert answer.last["stop_reason"] == text[-6:]
    assert len(answer.tokens()) <= 11


def test_min_tokens_holds_the_end_back(host: RequestHost) -> None:
    tokens = host.ask(stop_conditions=length(10)).tokens()
    early = {"max_tokens": 10, "stop_token_ids": [tokens[0]]}
    assert len(host.ask(stop_conditions=early).tokens()) == 1
    assert len(host.ask(stop_conditions={**early, "min_tokens": 5}).tokens()) >= 5


def test_a_request_with_no_token_left_ends_by_length_without_the_engine(host: RequestHost) -> None:
    answer = host.ask(stop_conditions={"max_tokens": 0})
    assert len(answer.chunks) == 1
    assert (answer.tokens(), answer.finish_reason) == ([], "length")


def test_samples_have_their_own_index_end_and_length(host: RequestHost) -> None:
    answer = host.ask(sampling_options={"n": 3, "temperature": 1.0}, stop_conditions=length(6))
    for index in range(3):
        assert len(answer.tokens(index)) == 6
    ends = [chunk["index"] for chunk in answer.chunks if chunk.get("finish_reason")]
    assert sorted(ends) == [0, 1, 2]


def test_any_seed_is_accepted(host: RequestHost) -> None:
    """SGLang makes it count with --enable-deterministic-inference only (docs/requests.md)."""
    for seed in (0, -5, 2**63 - 1):
        options = {"temperature": 1.0, "seed": seed}
        assert len(host.ask(sampling_options=options, stop_conditions=length(3)).tokens()) == 3


@pytest.mark.parametrize("top", [0, 1, 3])
def test_logprobs_are_aligned_token_by_token(host: RequestHost, top: int) -> None:
    answer = host.ask(stop_conditions=length(8), output_options={"logprobs": top})
    for chunk in answer.chunks:
        assert len(chunk.get("log_probs") or ()) == len(chunk["token_ids"])
        if top:
            assert [len(position) for position in chunk["top_logprobs"]] == [top] * len(
                chunk["token_ids"]
            )
            for token, logprob, position in zip(
                chunk["token_ids"], chunk["log_probs"], chunk["top_logprobs"], strict=True
            ):
                # Greedy: the chosen token is the likeliest.
                assert position[0]["token_id"] == token
                assert position[0]["logprob"] == pytest.approx(logprob)
        else:
            assert "top_logprobs" not in chunk


def test_logprobs_do_not_change_what_is_generated(host: RequestHost) -> None:
    plain = host.ask(stop_conditions=length(8)).tokens()
    assert host.ask(stop_conditions=length(8), output_options={"logprobs": 2}).tokens() == plain


def test_prompt_logprobs_cover_every_prompt_token_but_the_first(host: RequestHost) -> None:
    prompt = host.prompt("The engine streams tokens")
    answer = host.ask(prompt, stop_conditions=length(2), output_options={"prompt_logprobs": 2})
    positions = answer.last["engine_data"]["prompt_logprobs"]
    assert len(positions) == len(prompt)
    assert positions[0] is None
    for token, position in zip(prompt[1:], positions[1:], strict=True):
        assert math.isfinite(position[str(token)]["logprob"])
        assert 2 <= len(position) <= 3


def test_a_json_schema_shapes_the_answer(host: RequestHost) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["a"],
        "additionalProperties": False,
    }
    answer = host.ask(
        sampling_options={"temperature": 0.0, "guided_decoding": {"json": schema}},
        stop_conditions={"max_tokens": 60},
    )
    text = host.tokenizer.decode(answer.tokens(), skip_special_tokens=True)
    assert set(json.loads(text)) == {"a"}, text


@pytest.mark.parametrize(
    ("constraint", "pattern"),
    [
        ({"regex": "(yes|no) [0-9]{2}"}, r"(yes|no) \d\d"),
        ({"choice": ["a.b (c)", "d+e?", "x\ny"]}, r"a\.b \(c\)|d\+e\?|x\ny"),
        ({"grammar": 'root ::= "left" | "right"'}, "left|right"),
    ],
)
def test_a_constraint_shapes_the_answer(
    host: RequestHost, constraint: dict[str, Any], pattern: str
) -> None:
    answer = host.ask(
        sampling_options={"temperature": 0.0, "guided_decoding": constraint},
        stop_conditions={"max_tokens": 40},
    )
    text = host.tokenizer.decode(answer.tokens(), skip_special_tokens=True)
    assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize(
    "constraint",
    [
        {"regex": "a("},
        {"grammar": "root ::= ???"},
        {"structural_tag": {"type": "nonsense"}},
        {"json": {"type": "object", "properties": {"a": {"type": "objekt"}}}},
    ],
)
def test_a_constraint_that_does_not_compile_is_a_400_and_no_success(
    host: RequestHost, constraint: dict[str, Any]
) -> None:
    with pytest.raises(InvalidArgument):
        host.ask(
            sampling_options={"guided_decoding": constraint}, stop_conditions={"max_tokens": 5}
        )


def test_a_salt_separates_the_prefix_cache(host: RequestHost) -> None:
    prompt = host.prompt("A prefix that is long enough to be found again. " * 8)
    first = {"stop_conditions": length(2)}
    host.ask(prompt, **first)
    shared = host.ask(prompt, **first).usage["prompt_tokens_details"]["cached_tokens"]
    salted = host.ask(prompt, **first, routing={"cache_salt": "mine"})
    assert shared > 0
    assert salted.usage["prompt_tokens_details"]["cached_tokens"] == 0


def test_priorities_and_the_only_rank_are_accepted(host: RequestHost) -> None:
    answer = host.ask(stop_conditions=length(3), routing={"priority": 5, "dp_rank": 0})
    assert len(answer.tokens()) == 3


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"stop_conditions": {"stop_token_ids": [10**6]}}, "stop_token_ids"),
        ({"stop_conditions": {"min_tokens": 3, "max_tokens": 2}}, "min_tokens"),
        ({"stop_conditions": {"max_tokens": 10**6}}, "max_tokens"),
        ({"routing": {"dp_rank": 1}}, "dp_rank"),
        ({"routing": {"lora_name": "absent"}}, "model"),
        ({"multi_modal_data": {"image_url": [{"Url": "x"}]}}, "messages"),
    ],
)
def test_a_faulty_request_is_a_400_that_names_the_field(
    host: RequestHost, sections: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidArgument, match=field):
        host.ask(**sections)


def test_a_prompt_of_the_whole_context_is_refused_and_one_below_it_is_served(
    host: RequestHost,
) -> None:
    limits = host.engine.limits
    assert limits.max_input_length is not None
    longest = min(limits.usable_context, limits.max_input_length) - 1
    with pytest.raises(InvalidArgument, match="prompt"):
        host.ask([5] * (longest + 1), stop_conditions={"max_tokens": 1})
    assert len(host.ask([5] * longest, stop_conditions=length(1)).tokens()) == 1


def test_a_probe_passes_a_closed_gate_and_is_answered_for_a_paused_engine(
    host: RequestHost,
) -> None:
    from dynamo.llm.exceptions import WorkerUnavailable

    probe = {**host.request(stop_conditions={"max_tokens": 1}), PROBE_KEY: True}
    host.gate.close()
    try:
        with pytest.raises(WorkerUnavailable):
            host.ask()
        assert host.run(host.stream(probe)).finish_reason == "length"
        host.run(host.control.pause("in_place"))
        assert host.run(host.stream(probe)).finish_reason == "stop"
        host.run(host.control.continue_({}))
    finally:
        host.gate.open()
