"""What a configured generation route refuses, because SGLang's scheduler would not survive it."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.system.argument_checks import EngineFacts, check_arguments
from sglang_worker.system.conversion import RecordField
from sglang_worker.system.faults import BadRequest

FACTS = EngineFacts(
    device="cpu",
    vocab_size=100,
    sampling={
        "max_new_tokens": RecordField(int | None, False),
        "top_k": RecordField(int, False),
        "stop_token_ids": RecordField(set[int] | None, False),
        "repetition_penalty": RecordField(float, False),
        "n": RecordField(int, False),
    },
)


@pytest.mark.parametrize("method", ["generate", "async_generate"])
@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"input_ids": [5, -5]}, r"input_ids\[1\]: token id -5"),
        ({"input_ids": [100]}, r"input_ids\[0\]: token id 100"),
        ({"input_ids": [[1], [2, 100]]}, r"input_ids\[1\]\[1\]: token id 100"),
        ({"input_ids": [[1], []]}, r"input_ids\[1\]: must not be empty"),
        ({"input_ids": []}, "input_ids: must not be empty"),
        ({"top_logprobs_num": 101}, "top_logprobs_num: must be at most 100"),
        ({"top_logprobs_num": [0, -1]}, r"top_logprobs_num\[1\]: must be at least 0"),
        ({"logprob_start_len": -7}, "logprob_start_len: must be at least -1"),
        ({"prompt": ""}, "prompt: must not be empty"),
        ({"prompt": ["a", ""]}, r"prompt\[1\]: must not be empty"),
        ({"sampling_params": {"max_new_tokens": 1.5}}, "sampling_params field max_new_tokens"),
        ({"sampling_params": [{}, {"top_k": "a"}]}, r"sampling_params\[1\] field top_k"),
        ({"sampling_params": {"top_k": 1 << 40}}, "sampling_params.top_k: must be at most"),
        ({"sampling_params": {"stop_token_ids": [100]}}, r"sampling_params.stop_token_ids\[0\]"),
        ({"sampling_params": {"repetition_penalty": 1e-30}}, "repetition_penalty: must be at"),
        ({"sampling_params": {"n": 0}}, "n: must be at least 1"),
        ({"sampling_params": {"is_normalized": True}}, "unknown .* field 'is_normalized'"),
    ],
)
def test_a_generation_that_would_end_the_scheduler_is_refused_by_name(
    method: str, body: dict[str, Any], named: str
) -> None:
    with pytest.raises(BadRequest, match=named):
        check_arguments(method, body, FACTS)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"prompt": "hi"},
        {"prompt": ["a", "b"], "sampling_params": [{"max_new_tokens": 2}, {}]},
        {"input_ids": [[0, 99], [5]], "sampling_params": {"top_k": None, "stop_token_ids": [7]}},
    ],
)
def test_an_ordinary_generation_is_left_alone(body: dict[str, Any]) -> None:
    check_arguments("generate", body, FACTS)
