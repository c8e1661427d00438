"""When the answers of two configurations count as the same."""

from __future__ import annotations

import pytest

from benchmarks.tensor_parallel.agreement import (
    TOLERANCE_NATS,
    Answer,
    answer_of,
    compare,
    summary,
)
from benchmarks.tensor_parallel.model import DEVICE_SIZES, config_of, shapes


def answer(*tokens: tuple[str, float, float]) -> Answer:
    return Answer(3, tokens)


REFERENCE = answer(("a", -0.1, 2.0), ("b", -0.5, 0.01), ("c", -0.2, 1.0))


def test_equal_answers_agree_and_show_their_largest_difference() -> None:
    other = answer(("a", -0.1, 2.0), ("b", -0.53, 0.01), ("c", -0.2, 1.0))
    found = compare(REFERENCE, other)
    assert (found.common, found.gap_nats, found.agrees) == (3, None, True)
    assert found.largest_difference_nats == pytest.approx(0.03)


def test_parting_where_two_tokens_are_as_good_is_agreement() -> None:
    found = compare(REFERENCE, answer(("a", -0.1, 2.0), ("x", -0.5, 0.0), ("y", -9.0, 0.0)))
    assert (found.common, found.gap_nats, found.agrees) == (1, 0.01, True)


def test_parting_where_one_token_is_clearly_best_is_none() -> None:
    found = compare(REFERENCE, answer(("z", -0.1, 2.0), ("b", -0.5, 0.0), ("c", -0.2, 1.0)))
    assert found.gap_nats == 2.0 > TOLERANCE_NATS
    assert not found.agrees


@pytest.mark.parametrize("other", [REFERENCE.tokens[:2], (*REFERENCE.tokens, ("d", -1.0, 1.0))])
def test_answers_of_different_length_do_not_agree(
    other: tuple[tuple[str, float, float], ...],
) -> None:
    assert not compare(REFERENCE, answer(*other)).agrees


def test_the_summary_counts_prompts_and_tokens() -> None:
    row = summary([REFERENCE] * 2, [REFERENCE, answer(("z", 0.0, 0.0))])
    assert (row["identical"], row["prompts"], row["common_tokens"], row["agrees"]) == (
        *(1, 2, 3),
        False,
    )


def test_a_chat_answer_is_read_with_the_distance_of_its_two_best_tokens() -> None:
    entry = {
        "token": "a",
        "logprob": -0.5,
        "top_logprobs": [{"logprob": -0.75}, {"logprob": -0.5}],
    }
    body = {
        "usage": {"prompt_tokens": 7},
        "choices": [{"logprobs": {"content": [entry]}}],
    }
    assert answer_of(body) == Answer(7, (("a", -0.5, 0.25),))


def test_every_weight_can_be_divided_over_two_ranks() -> None:
    config = config_of(DEVICE_SIZES, "bfloat16")
    found = dict(shapes(config))
    assert found["model.layers.0.linear_attn.in_proj_qkvz.weight"] == (12288, 1024)
    assert config["num_key_value_heads"] % 2 == 0
    assert config["moe_intermediate_size"] % 2 == 0
    assert "mtp.layers.0.self_attn.q_proj.weight" in found
