from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.mapping import GenerateCall

Call = Callable[..., GenerateCall]


def stopped(call: Call, **conditions: Any) -> Any:
    return call(stop=conditions).fields["sampling_params"]


def test_without_max_tokens_sglang_is_told_to_run_to_the_end(call: Call) -> None:
    assert stopped(call) == {"max_new_tokens": None}


def test_all_kinds_of_stop_ids_are_united_but_only_the_clients_own_are_reported(
    call: Call,
) -> None:
    mapped = call(
        stop={
            "stop_token_ids": [3],
            "stop_token_ids_visible": [4],
            "stop_token_ids_hidden": [2, 3],
        }
    )
    assert mapped.fields["sampling_params"]["stop_token_ids"] == [2, 3, 4]
    assert mapped.user_stop_ids == {3, 4}


def test_a_clients_stop_id_outside_the_vocabulary_is_named_with_its_place(call: Call) -> None:
    with pytest.raises(InvalidRequest) as caught:
        stopped(call, stop_token_ids=[1, 1000])
    assert caught.value.field == "stop_token_ids[1]"


def test_a_tokenizers_own_stop_id_outside_the_vocabulary_is_dropped(call: Call) -> None:
    assert stopped(call, stop_token_ids_hidden=[2, 5000])["stop_token_ids"] == [2]
    assert "stop_token_ids" not in stopped(call, stop_token_ids_hidden=[5000])


def test_stop_strings_are_passed_on_only_when_the_engine_can_match_them(call: Call) -> None:
    assert stopped(call, stop=["a", "b"])["stop"] == ["a", "b"]
    assert stopped(call, stop="a")["stop"] == ["a"]
    without = call(stop={"stop": ["a"]}, change={"has_tokenizer": False})
    assert "stop" not in without.fields["sampling_params"]


@pytest.mark.parametrize("stop", [[""], [1], {"a": 1}, [None], ["x"] * 33])
def test_stop_must_be_a_few_non_empty_strings(call: Call, stop: Any) -> None:
    with pytest.raises(InvalidRequest, match="stop"):
        stopped(call, stop=stop)


def test_ignore_eos_is_passed_on(call: Call) -> None:
    assert stopped(call, ignore_eos=True)["ignore_eos"] is True
    assert "ignore_eos" not in stopped(call, ignore_eos=False)


def test_prompt_and_max_tokens_fill_the_context_to_the_last_token(call: Call) -> None:
    assert stopped(call, max_tokens=116)["max_new_tokens"] == 116
    with pytest.raises(InvalidRequest, match="at most 116"):
        stopped(call, max_tokens=117)


def test_an_engine_that_truncates_or_does_not_mind_gets_any_max_tokens(call: Call) -> None:
    for change in ({"truncates": True}, {"rejects_long_totals": False}):
        assert call(stop={"max_tokens": 9999}, change=change).max_tokens == 9999


def test_a_migrated_request_with_no_token_left_is_complete(call: Call) -> None:
    assert call(stop={"max_tokens": 0}).is_already_complete
    assert not call(stop={"max_tokens": 1}).is_already_complete
    assert not call().is_already_complete


@pytest.mark.parametrize("value", [-1, 1.5, "2", True])
def test_max_tokens_must_be_a_whole_number(call: Call, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="max_tokens"):
        stopped(call, max_tokens=value)


def test_min_tokens_above_max_tokens_or_beyond_the_context_is_impossible(call: Call) -> None:
    with pytest.raises(InvalidRequest, match="min_tokens"):
        stopped(call, min_tokens=5, max_tokens=4)
    with pytest.raises(InvalidRequest, match="min_tokens"):
        stopped(call, min_tokens=117)
    assert stopped(call, min_tokens=4, max_tokens=4)["min_new_tokens"] == 4


def test_min_tokens_cannot_hold_back_every_token_there_is(call: Call) -> None:
    every = list(range(1000))
    with pytest.raises(InvalidRequest, match="min_tokens"):
        stopped(call, min_tokens=1, stop_token_ids=every)
    assert stopped(call, stop_token_ids=every)


@pytest.mark.parametrize("change", [{"has_tokenizer": False}, {"has_eos": False}])
def test_min_tokens_needs_an_end_of_sequence_to_hold_back(
    call: Call, change: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest, match="min_tokens"):
        call(stop={"min_tokens": 1}, change=change)
    assert call(stop={"min_tokens": 0}, change=change)
