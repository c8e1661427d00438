from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from sglang_worker.requests.chunks import GRAMMAR_FAILURE, ChunkWriter, complete_at_once
from sglang_worker.requests.errors import EndedByEngine, RefusedByEngine
from sglang_worker.requests.mapping import GenerateCall

Call = Callable[..., GenerateCall]


def output(
    tokens: list[int], finish: dict[str, Any] | None = None, index: int | None = None, **meta: Any
) -> dict[str, Any]:
    made = {"output_ids": tokens, "meta_info": {"id": "x", "finish_reason": finish, **meta}}
    if index is not None:
        made["index"] = index
    return made


COUNTS = {"prompt_tokens": 4, "completion_tokens": 2, "cached_tokens": 1}
USAGE = {
    "prompt_tokens": 4,
    "completion_tokens": 2,
    "total_tokens": 6,
    "prompt_tokens_details": {"cached_tokens": 1},
}


def test_the_middle_of_a_plain_answer_is_its_tokens_alone(call: Call) -> None:
    writer = ChunkWriter(call())
    assert writer.write(output([1], **COUNTS)) == {"token_ids": [1], "completion_usage": USAGE}
    tokens = [2, 3]
    middle = writer.write(output(tokens, **COUNTS))
    assert middle == {"token_ids": [2, 3]}
    assert middle["token_ids"] is tokens


def test_the_last_chunk_has_finish_reason_usage_and_cache_reuse(call: Call) -> None:
    writer = ChunkWriter(call())
    writer.write(output([1]))
    last = writer.write(output([2], {"type": "length", "length": 2}, **COUNTS))
    assert last == {
        "token_ids": [2],
        "finish_reason": "length",
        "completion_usage": USAGE,
        "engine_data": {"kv_cache_hit": {"prompt_tokens": 4, "reused_tokens": 1}},
    }


def test_an_output_that_says_nothing_new_makes_no_chunk(call: Call) -> None:
    assert ChunkWriter(call()).write(output([])) is None
    finished = ChunkWriter(call()).write(output([], {"type": "stop", "matched": "x"}))
    assert finished is not None
    assert finished["token_ids"] == []


def test_the_stop_reason_is_the_clients_own_and_never_the_models_end(call: Call) -> None:
    asked = call(stop={"stop_token_ids": [7], "stop_token_ids_hidden": [2]})
    for matched, reported in ((7, 7), ("end", "end"), (2, None)):
        last = ChunkWriter(asked).write(output([1], {"type": "stop", "matched": matched}))
        assert last is not None
        assert last.get("stop_reason") == reported


def test_every_sample_has_its_index_and_its_own_usage(call: Call) -> None:
    writer = ChunkWriter(call(sampling={"n": 2}))
    first = writer.write(output([1], index=1, **COUNTS))
    second = writer.write(output([2], index=0, **COUNTS))
    third = writer.write(output([3], index=1, **COUNTS))
    assert first == {"token_ids": [1], "index": 1, "completion_usage": USAGE}
    assert second is not None
    assert (second["index"], "completion_usage" in second) == (0, True)
    assert third == {"token_ids": [3], "index": 1}
    last = writer.write(output([4], {"type": "stop", "matched": 2}, index=0, **COUNTS))
    assert last is not None
    assert "engine_data" not in last


def test_logprobs_are_aligned_with_the_chunks_tokens(call: Call) -> None:
    writer = ChunkWriter(call(output={"logprobs": 1, "prompt_logprobs": 2}))
    chunk = writer.write(
        output(
            [5, 6],
            output_token_logprobs=[(-0.5, 5, None), (-math.inf, 6, None)],
            output_top_logprobs=[[(-0.1, 9, "t"), (-0.5, 5, None)], None],
        )
    )
    assert chunk is not None
    assert chunk["log_probs"] == [-0.5, -9999.0]
    assert chunk["top_logprobs"] == [
        [{"rank": 1, "token_id": 9, "token": "t", "logprob": -0.1}],
        [],
    ]


def test_the_chosen_token_alone_has_no_alternatives(call: Call) -> None:
    writer = ChunkWriter(call(output={"logprobs": 0}))
    chunk = writer.write(output([5], output_token_logprobs=[(-0.5, 5, None)]))
    assert chunk is not None
    assert chunk["log_probs"] == [-0.5]
    assert "top_logprobs" not in chunk


def test_surplus_logprobs_are_cut_and_missing_ones_are_not_guessed(call: Call) -> None:
    surplus = [(-0.5, 5, None), (-0.6, 6, None)]
    chunk = ChunkWriter(call(output={"logprobs": 0})).write(
        output([5], output_token_logprobs=surplus)
    )
    assert chunk is not None
    assert chunk["log_probs"] == [-0.5]
    chunk = ChunkWriter(call(output={"logprobs": 0})).write(
        output([5, 6, 7], output_token_logprobs=surplus)
    )
    assert chunk is not None
    assert "log_probs" not in chunk


def test_alternatives_can_be_named_by_id(call: Call) -> None:
    writer = ChunkWriter(call(output={"logprobs": 1, "return_tokens_as_token_ids": True}))
    chunk = writer.write(
        output(
            [5],
            output_token_logprobs=[(-0.5, 5, None)],
            output_top_logprobs=[[(-0.5, 5, "x")]],
        )
    )
    assert chunk is not None
    assert chunk["top_logprobs"][0][0]["token"] == "token_id:5"


def test_prompt_logprobs_ride_on_the_last_chunk_and_the_first_token_has_none(call: Call) -> None:
    writer = ChunkWriter(call(output={"prompt_logprobs": 1}))
    chunk = writer.write(
        output(
            [5],
            {"type": "length"},
            input_token_logprobs=[(None, 1, None), (-1.0, 2, "b")],
            input_top_logprobs=[None, [(-0.2, 3, None), (-1.0, 2, "b")]],
        )
    )
    assert chunk is not None
    assert "log_probs" not in chunk
    assert chunk["engine_data"]["prompt_logprobs"] == [
        None,
        {"2": {"logprob": -1.0, "decoded_token": "b"}, "3": {"logprob": -0.2}},
    ]


@pytest.mark.parametrize(
    ("finish", "status"),
    [
        ({"type": "abort", "message": "m", "status_code": 400}, 400),
        ({"type": "abort", "message": "m", "status_code": 503}, 503),
        ({"type": "abort", "message": "m", "status_code": 200}, 500),
        ({"type": "abort", "message": GRAMMAR_FAILURE, "status_code": 500}, 400),
        ({"type": "abort", "message": "m", "err_type": "InternalServerError"}, 500),
    ],
)
def test_an_abort_with_a_status_is_a_refusal(
    call: Call, finish: dict[str, Any], status: int
) -> None:
    with pytest.raises(RefusedByEngine) as caught:
        ChunkWriter(call()).write(output([1], finish))
    assert (caught.value.status, caught.value.message) == (status, finish["message"])


def test_an_abort_without_a_status_lets_another_worker_go_on(call: Call) -> None:
    with pytest.raises(EndedByEngine):
        ChunkWriter(call()).write(output([], {"type": "abort", "message": "Aborted"}))


def test_a_complete_request_ends_by_length_for_every_sample(call: Call) -> None:
    (one,) = complete_at_once(call(stop={"max_tokens": 0}))
    assert one["finish_reason"] == "length"
    assert one["completion_usage"]["total_tokens"] == 4
    several = complete_at_once(call(stop={"max_tokens": 0}, sampling={"n": 3}))
    assert [chunk["index"] for chunk in several] == [0, 1, 2]
