"""Embeddings requests: every shape of input, every fault by its field, answers in order."""

from __future__ import annotations

import base64
import struct
from typing import Any

import msgspec
import pytest
from sglang_worker.requests.embedding import (
    EmbeddingCall,
    EmbeddingLimits,
    answer,
    check_prompts,
    map_embedding,
    packed,
)
from sglang_worker.requests.errors import EndedByEngine, InvalidRequest, RefusedByEngine
from sglang_worker.requests.limits import EngineLimits


@pytest.fixture
def fixed(limits: EngineLimits) -> EmbeddingLimits:
    """A model whose vectors have one length."""
    return EmbeddingLimits(engine=limits, dimensions=8)


def mapped(limits: EmbeddingLimits, value: Any, **more: Any) -> EmbeddingCall:
    return map_embedding({"model": "m", "input": value, **more}, limits)


def refusal(limits: EmbeddingLimits, value: Any, **more: Any) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        mapped(limits, value, **more)
    return caught.value


def test_every_shape_of_input_keeps_its_order(fixed: EmbeddingLimits) -> None:
    assert mapped(fixed, "one").texts == ("one",)
    assert mapped(fixed, ["b", "a"]).texts == ("b", "a")
    assert mapped(fixed, [3, 2]).prompts == ([3, 2],)
    assert mapped(fixed, [[3, 2], [1]]).prompts == ([3, 2], [1])


def test_token_lists_are_copied_because_sglang_may_cut_them(fixed: EmbeddingLimits) -> None:
    sent = [[1, 2, 3]]
    prompts = mapped(fixed, sent).prompts
    assert prompts is not None and prompts[0] == sent[0] and prompts[0] is not sent[0]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (None, "input"),
        (7, "input"),
        ({"text": "a"}, "input"),
        ("", "input"),
        (" \n", "input"),
        ([], "input"),
        (["a", "", "b"], "input[1]"),
        (["a", 5], "input[1]"),
        (["a", ["b"]], "input[1]"),
        ([1, "a"], "input[1]"),
        ([1, True], "input[1]"),
        ([True], "input[0]"),
        ([1.5], "input[0]"),
        ([{"image": "x"}], "input[0]"),
        ([[1], []], "input[1]"),
        ([[]], "input[0]"),
        ([[1], 2], "input[1]"),
        ([[1], "a"], "input[1]"),
        ([[1, "a"]], "input[0][1]"),
        ([-1], "input[0]"),
        ([5, 1000], "input[1]"),
        ([[1], [5, 1000]], "input[1][1]"),
    ],
)
def test_a_bad_input_is_named_by_its_place(fixed: EmbeddingLimits, value: Any, field: str) -> None:
    assert refusal(fixed, value).field == field


def test_a_prompt_may_be_as_long_as_the_scheduler_takes(fixed: EmbeddingLimits) -> None:
    assert fixed.engine.longest_prompt == 109
    assert mapped(fixed, [1] * 109).prompts is not None
    assert refusal(fixed, [1] * 110).field == "input"
    error = refusal(fixed, [[1], [1] * 110])
    assert error.field == "input[1]" and "110 tokens" in error.message and "109" in error.message


def test_an_engine_that_truncates_takes_longer_prompts(fixed: EmbeddingLimits) -> None:
    truncating = msgspec.structs.replace(
        fixed, engine=msgspec.structs.replace(fixed.engine, truncates=True)
    )
    assert mapped(truncating, [1] * 500).prompts is not None


def test_texts_are_checked_once_they_are_tokens(fixed: EmbeddingLimits) -> None:
    call = mapped(fixed, ["a", "b"])
    check_prompts(call, [[1], [2]], fixed.engine)
    with pytest.raises(InvalidRequest, match=r"input\[1\]: has 200 tokens"):
        check_prompts(call, [[1], [2] * 200], fixed.engine)
    with pytest.raises(InvalidRequest, match="input: has 200 tokens"):
        check_prompts(mapped(fixed, "b"), [[2] * 200], fixed.engine)


def test_an_engine_without_tokenizer_takes_token_ids_alone(fixed: EmbeddingLimits) -> None:
    bare = msgspec.structs.replace(
        fixed, engine=msgspec.structs.replace(fixed.engine, has_tokenizer=False)
    )
    assert mapped(bare, [1]).prompts == ([1],)
    assert refusal(bare, "text").field == "input"


def test_dimensions_need_a_matryoshka_model(fixed: EmbeddingLimits) -> None:
    error = refusal(fixed, "a", dimensions=4)
    assert error.field == "dimensions" and "8 values" in error.message
    free = msgspec.structs.replace(fixed, matryoshka=True)
    assert mapped(free, "a", dimensions=8).dimensions == 8
    assert mapped(free, "a").dimensions is None
    for bad in (0, -1, 9, "4", 4.0, True):
        assert refusal(free, "a", dimensions=bad).field == "dimensions"
    some = msgspec.structs.replace(free, matryoshka_dimensions=(2, 4))
    assert mapped(some, "a", dimensions=4).dimensions == 4
    assert "2, 4" in refusal(some, "a", dimensions=3).message


def test_other_fields_are_checked_too(fixed: EmbeddingLimits) -> None:
    assert refusal(fixed, "a", encoding_format="hex").field == "encoding_format"
    assert refusal(fixed, "a", encoding_format=1).field == "encoding_format"
    assert refusal(fixed, "a", model=1).field == "model"
    with pytest.raises(InvalidRequest, match="request"):
        map_embedding(["a"], fixed)
    assert mapped(fixed, "a", encoding_format="base64", user="u", unknown=1).texts == ("a",)


def output(vector: list[float], tokens: int, finish: Any = None) -> dict[str, Any]:
    return {"embedding": vector, "meta_info": {"prompt_tokens": tokens, "finish_reason": finish}}


def test_the_answer_lists_vectors_in_order_and_counts_all_tokens(fixed: EmbeddingLimits) -> None:
    call = mapped(fixed, ["a", "b"])
    reply = answer(call, [output([1.5], 3, {"type": "length"}), output([-2.0], 4)], "served")
    assert [item["index"] for item in reply["data"]] == [0, 1]
    assert [item["embedding"] for item in reply["data"]] == [packed([1.5]), packed([-2.0])]
    assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert reply["model"] == "m"
    unnamed = map_embedding({"input": "a"}, fixed)
    assert answer(unnamed, [output([1.0], 1)], "served")["model"] == "served"


def test_a_vector_travels_as_little_endian_floats() -> None:
    values = [0.1, -3.5, 1e-8]
    expected = struct.pack("<3f", *values)
    assert base64.b64decode(packed(values)) == expected


def test_an_input_that_sglang_gave_up_fails_the_whole_request(fixed: EmbeddingLimits) -> None:
    call = mapped(fixed, ["a", "b"])
    aborted = {"type": "abort", "message": "paused"}
    with pytest.raises(EndedByEngine, match="paused"):
        answer(call, [output([1.0], 1), output([], 0, aborted)], "served")
    with pytest.raises(RefusedByEngine, match="full"):
        answer(call, [output([], 0, {**aborted, "status_code": 503, "message": "full"})], "s")
