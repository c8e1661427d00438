"""A diffusion language model is asked for nothing that SGLang would leave unanswered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.llm_diffusion import refuse_impossible
from sglang_worker.requests.mapping import GenerateCall


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"output": {"logprobs": 0}}, "logprobs"),
        ({"output": {"logprobs": 3}}, "logprobs"),
        ({"output": {"prompt_logprobs": 0}}, "prompt_logprobs"),
        ({"stop": {"min_tokens": 2}}, "min_tokens"),
        ({"sampling": {"guided_decoding": {"json": {"type": "object"}}}}, "guided_json"),
        ({"sampling": {"guided_decoding": {"regex": "a+"}}}, "guided_regex"),
        ({"sampling": {"guided_decoding": {"choice": ["a"]}}}, "guided_regex"),
        ({"sampling": {"guided_decoding": {"grammar": 'root ::= "a"'}}}, "guided_grammar"),
        (
            {"sampling": {"guided_decoding": {"structural_tag": {"type": "structural_tag"}}}},
            "guided_structural_tag",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(
    call: Callable[..., GenerateCall], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        refuse_impossible(call(**options))
    assert caught.value.field == field
    assert "diffusion" in caught.value.message


def test_a_budget_for_thinking_is_refused(call: Callable[..., GenerateCall]) -> None:
    wanted = call(
        stop={"max_thinking_tokens": 4},
        change={"strict_thinking": True, "reasoning_parser": "x"},
        require_reasoning=True,
    )
    with pytest.raises(InvalidRequest, match="thinking_token_budget"):
        refuse_impossible(wanted)


def test_options_that_only_steer_a_sampler_pass(call: Callable[..., GenerateCall]) -> None:
    refuse_impossible(
        call(
            sampling={"temperature": 0.7, "top_p": 0.5, "seed": 3, "frequency_penalty": 1, "n": 2},
            stop={"max_tokens": 4, "stop": ["x"], "stop_token_ids": [3], "min_tokens": 0},
        )
    )
