from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.mapping import GenerateCall

Call = Callable[..., GenerateCall]


def sampled(call: Call, **options: Any) -> Any:
    return call(sampling=options).fields["sampling_params"]


def test_what_the_client_left_out_is_left_to_sglang(call: Call) -> None:
    assert sampled(call, temperature=None, top_p=None) == {"max_new_tokens": None}


def test_options_keep_their_names_and_the_seed_gets_sglangs(call: Call) -> None:
    options = {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "frequency_penalty": 1.0,
        "presence_penalty": -1.0,
        "repetition_penalty": 1.1,
    }
    assert sampled(call, **options, seed=3) == {
        **options,
        "sampling_seed": 3,
        "max_new_tokens": None,
    }


@pytest.mark.parametrize("top_k", [0, -1])
def test_zero_and_minus_one_top_k_both_mean_the_whole_vocabulary(call: Call, top_k: int) -> None:
    assert sampled(call, top_k=top_k)["top_k"] == -1


def test_a_huge_top_k_is_cut_to_what_sglang_can_hold(call: Call) -> None:
    assert sampled(call, top_k=2**40)["top_k"] == 2**30


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.inf),
        ("temperature", math.nan),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("frequency_penalty", 2.1),
        ("presence_penalty", -2.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1e-30),
        ("repetition_penalty", 2.5),
        ("top_k", -2),
        ("top_k", 1.5),
        ("seed", 2**63),
        ("seed", 1.0),
        ("n", 0),
        ("n", 129),
        ("n", True),
        ("best_of", 2),
        ("use_beam_search", True),
        ("use_beam_search", "yes"),
    ],
)
def test_a_value_that_sglang_would_refuse_names_its_field(
    call: Call, field: str, value: Any
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        sampled(call, **{field: value})
    assert caught.value.field == field


def test_several_samples_are_counted_and_best_of_equal_to_n_is_harmless(call: Call) -> None:
    several = call(sampling={"n": 3, "best_of": 3})
    assert several.samples == 3
    assert several.fields["sampling_params"]["n"] == 3
    assert "n" not in call(sampling={"n": 1}).fields["sampling_params"]


@pytest.mark.parametrize("section", ["sampling_options", "stop_conditions", "output_options"])
def test_a_section_that_is_no_object_is_named(call: Call, section: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call(**{section: [1]})
    assert caught.value.field == section


def test_the_models_own_defaults_fill_what_the_client_left_out(call: Call) -> None:
    defaults = {"default_sampling": {"temperature": 0.6, "top_k": 20}}
    mapped = call(sampling={"temperature": 1.0, "top_k": None}, change=defaults)
    assert mapped.fields["sampling_params"] == {
        "temperature": 1.0,
        "top_k": 20,
        "max_new_tokens": None,
    }
    assert defaults["default_sampling"] == {"temperature": 0.6, "top_k": 20}
