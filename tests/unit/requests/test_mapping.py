from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.ids import ID_LENGTH, new_request_id
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import GenerateCall, map_request

Call = Callable[..., GenerateCall]


def test_the_prompt_goes_to_sglang_uncopied(limits: EngineLimits) -> None:
    prompt = [1, 2, 3]
    mapped = map_request({"token_ids": prompt}, limits)
    assert mapped.fields["input_ids"] is prompt
    assert mapped.prompt_tokens == 3


def test_an_engine_that_truncates_in_place_gets_its_own_copy(call: Call) -> None:
    prompt = [1] * 500
    mapped = call(token_ids=prompt, change={"truncates": True})
    assert mapped.fields["input_ids"] == prompt
    assert mapped.fields["input_ids"] is not prompt


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        (None, "token_ids"),
        ([], "token_ids"),
        ("text", "token_ids"),
        ([1, "2"], "token_ids[1]"),
        ([1, True], "token_ids[1]"),
        ([1, 2.0], "token_ids[1]"),
        ([1, -1], "token_ids[1]"),
        ([1, 1000], "token_ids[1]"),
        ([1] * 110, "prompt"),
    ],
)
def test_a_prompt_that_cannot_be_served_is_refused(call: Call, prompt: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call(token_ids=prompt)
    assert caught.value.field == field


def test_the_longest_prompt_leaves_room_for_one_token(call: Call) -> None:
    assert call(token_ids=[1] * 109)
    assert call(token_ids=[1] * 119, change={"max_input_length": None})
    with pytest.raises(InvalidRequest, match="prompt"):
        call(token_ids=[1] * 120, change={"max_input_length": None})


def test_routing_hints_are_passed_on(call: Call) -> None:
    mapped = call(
        routing={"dp_rank": 1, "prefill_dp_rank": 3, "priority": -2, "cache_salt": "s"}
    ).fields
    assert mapped["routed_dp_rank"] == 1
    assert mapped["disagg_prefill_dp_rank"] == 3
    assert mapped["priority"] == -2
    assert mapped["cache_salt"] == "s"


@pytest.mark.parametrize(
    ("routing", "field"),
    [
        ({"dp_rank": 2}, "dp_rank"),
        ({"dp_rank": -1}, "dp_rank"),
        ({"priority": "high"}, "priority"),
        ({"priority": 2**31}, "priority"),
        ({"cache_salt": 1}, "cache_salt"),
        ({"lora_name": "absent"}, "model"),
        ([], "routing"),
    ],
)
def test_a_wrong_routing_hint_is_named(call: Call, routing: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        call(routing=routing)
    assert caught.value.field == field


def test_the_first_salt_that_is_not_empty_wins(call: Call) -> None:
    mapped = call(
        routing={"cache_salt": ""}, extra_args={"nvext": {"cache_salt": "b"}}, cache_salt="c"
    )
    assert mapped.fields["cache_salt"] == "b"


def test_a_salt_is_never_silently_ignored(call: Call) -> None:
    with pytest.raises(InvalidRequest, match="cache_salt"):
        call(cache_salt="x", change={"request_fields": frozenset()})


def test_a_loaded_adapter_is_asked_for_by_its_name_as_the_model(call: Call) -> None:
    assert call(model="poet", loras=("poet",)).fields["lora_path"] == "poet"
    assert "lora_path" not in call(model="m", loras=("poet",)).fields
    assert call(routing={"lora_name": "poet"}, loras=("poet",)).fields["lora_path"] == "poet"


def test_media_on_a_text_only_model_is_refused_wherever_it_hides(call: Call) -> None:
    url = {"image_url": [{"Url": "http://127.0.0.1/a.png"}]}
    with pytest.raises(InvalidRequest, match="image_url"):
        call(multi_modal_data=url)
    part = {"type": "audio_url", "audio_url": {"url": "x"}}
    with pytest.raises(InvalidRequest, match="audio_url"):
        call(extra_args={"messages": [{"role": "user", "content": [part]}]})


def test_a_model_that_sees_gets_parts_and_unusual_placeholders(call: Call) -> None:
    mapped = call(
        token_ids=[1, 99999],
        multi_modal_data={"image_url": [{"Url": "a"}, "b"], "video_url": []},
        change={"accepts_media": True},
    )
    assert [part.url for part in mapped.fields["image_data"]] == ["a", "b"]
    assert "video_data" not in mapped.fields
    with pytest.raises(InvalidRequest, match=r"image_url\[0\]"):
        call(multi_modal_data={"image_url": [{"Url": 5}]}, change={"accepts_media": True})


def test_decode_needs_to_know_where_the_prefill_ran(call: Call) -> None:
    info = {"bootstrap_host": "127.0.0.1", "bootstrap_port": 5, "bootstrap_room": 2**62}
    mapped = call(bootstrap_info=info, remote_prefill=True).fields
    assert {name: mapped[name] for name in info} == info
    with pytest.raises(InvalidRequest, match="bootstrap_room"):
        call(bootstrap_info={**info, "bootstrap_room": None}, remote_prefill=True)
    with pytest.raises(InvalidRequest, match="n:"):
        call(bootstrap_info=info, sampling={"n": 2}, remote_prefill=True)


def test_skipping_the_remote_prefill_of_one_request_is_refused(call: Call) -> None:
    with pytest.raises(InvalidRequest, match="x-bypass-remote-prefill"):
        call(annotations=["x-bypass-remote-prefill"])


def test_a_thinking_budget_needs_an_engine_that_enforces_it(call: Call) -> None:
    with pytest.raises(InvalidRequest, match="thinking_token_budget"):
        call(stop={"max_thinking_tokens": 5})
    able = {"strict_thinking": True, "reasoning_parser": "qwen3"}
    mapped = call(stop={"max_thinking_tokens": 5}, require_reasoning=True, change=able)
    assert mapped.fields["sampling_params"]["custom_params"] == {"thinking_budget": 5}
    assert mapped.fields["require_reasoning"] is True


def test_agent_sessions_are_passed_on_when_the_engine_knows_them(call: Call) -> None:
    mapped = call(agent_context={"session_id": " a ", "parent_session_id": "b"}).fields
    assert mapped["session_id"] == "a"
    assert "parent_session_id" not in mapped


def test_prompt_logprobs_and_answer_logprobs_share_one_width(call: Call) -> None:
    assert "return_logprob" not in call().fields
    chosen_only = call(output={"logprobs": 0}).fields
    assert chosen_only["return_logprob"] is True
    assert chosen_only["top_logprobs_num"] == 0
    assert "logprob_start_len" not in chosen_only
    both = call(output={"logprobs": 1, "prompt_logprobs": 3}).fields
    assert (both["top_logprobs_num"], both["logprob_start_len"]) == (3, 0)


@pytest.mark.parametrize("value", [-1, 1001, "3", True])
def test_a_number_of_alternatives_that_cannot_be_is_refused(call: Call, value: Any) -> None:
    with pytest.raises(InvalidRequest, match="logprobs"):
        call(output={"logprobs": value})


def test_request_ids_are_fresh_and_of_one_length() -> None:
    ids = {new_request_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(one) for one in ids} == {ID_LENGTH}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
FIELDS = (
    ("sampling_options", ("n", "temperature", "top_p", "top_k", "seed", "guided_decoding")),
    ("stop_conditions", ("max_tokens", "min_tokens", "stop", "stop_token_ids", "ignore_eos")),
    ("output_options", ("logprobs", "prompt_logprobs", "return_tokens_as_token_ids")),
    ("routing", ("dp_rank", "priority", "cache_salt", "lora_name")),
)


@st.composite
def wild_requests(draw: Any) -> dict[str, Any]:
    request: dict[str, Any] = {"token_ids": draw(st.lists(st.integers(0, 999), min_size=1) | JSON)}
    for section, names in FIELDS:
        if draw(st.booleans()):
            request[section] = draw(
                st.dictionaries(st.sampled_from(names), JSON, max_size=3) | JSON
            )
    for name in ("model", "annotations", "extra_args", "multi_modal_data", "agent_context"):
        if draw(st.booleans()):
            request[name] = draw(JSON)
    return request


@given(wild_requests())
def test_whatever_arrives_is_mapped_or_refused_by_name(request: dict[str, Any]) -> None:
    limits = EngineLimits(vocab_size=1000, context_length=128)
    try:
        mapped = map_request(request, limits)
    except InvalidRequest as error:
        assert error.field
        assert error.message
    else:
        assert mapped.prompt_tokens == len(request["token_ids"])
