"""What prefill and decode workers make of a request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sglang_worker.requests.disaggregation import RANK_UNSET, ROOM_LIMIT, BootstrapAddress
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import GenerateCall, map_request
from sglang_worker.requests.prefill import handover_chunk, map_prefill, new_room

OURS = BootstrapAddress("[fd00::7]", 8998)
ROUTED = {"bootstrap_host": "10.0.0.9", "bootstrap_port": 9000, "bootstrap_room": 77}


def request(**changed: Any) -> dict[str, Any]:
    return {"token_ids": [5, 6, 7], "stop_conditions": {"max_tokens": 40}, **changed}


@pytest.fixture
def prefill(limits: EngineLimits) -> Any:
    def mapped(**changed: Any) -> GenerateCall:
        return map_prefill(request(**changed), limits, OURS)

    return mapped


def test_a_prefill_makes_the_first_token_only(prefill: Any) -> None:
    call = prefill(stop_conditions={"max_tokens": 40, "min_tokens": 9})
    sampling = call.fields["sampling_params"]
    assert (sampling["max_new_tokens"], sampling["min_new_tokens"], call.max_tokens) == (1, 1, 1)


def test_the_first_token_is_sampled_as_the_client_asked(prefill: Any) -> None:
    call = prefill(
        sampling_options={"temperature": 0.3, "top_k": 4}, output_options={"logprobs": 2}
    )
    sampling = call.fields["sampling_params"]
    assert (sampling["temperature"], sampling["top_k"]) == (0.3, 4)
    assert (call.fields["return_logprob"], call.fields["top_logprobs_num"]) == (True, 2)


def test_a_request_migrated_with_nothing_left_to_make_still_computes_its_prompt(
    prefill: Any,
) -> None:
    assert not prefill(stop_conditions={"max_tokens": 0}).is_already_complete


def test_the_routers_room_is_kept_and_told_on(prefill: Any) -> None:
    call = prefill(bootstrap_info=ROUTED)
    assert handover_chunk(call) == {"token_ids": [], "disaggregated_params": ROUTED}


@pytest.mark.parametrize("info", [None, {}, {"bootstrap_room": None}])
def test_without_a_room_a_fresh_one_is_opened_at_our_own_address(prefill: Any, info: Any) -> None:
    first, second = (
        handover_chunk(prefill(bootstrap_info=info))["disaggregated_params"] for _ in range(2)
    )
    assert (first["bootstrap_host"], first["bootstrap_port"]) == ("[fd00::7]", 8998)
    assert 0 <= first["bootstrap_room"] < ROOM_LIMIT
    assert first["bootstrap_room"] != second["bootstrap_room"]


def test_a_fresh_room_leads_decode_to_the_rank_that_computes_it(limits: EngineLimits) -> None:
    many = msgspec.structs.replace(limits, dp_ranks=4)
    rooms = [new_room(rank, many) for rank in (0, 1, 2, 3) for _ in range(50)]
    assert [room % 4 for room in rooms] == [rank for rank in (0, 1, 2, 3) for _ in range(50)]
    assert all(0 <= room < ROOM_LIMIT for room in rooms)


def ranks(call: GenerateCall) -> tuple[Any, Any]:
    """What SGLang is told: the choice, and that decode knows it."""
    return call.fields.get("routed_dp_rank"), call.fields.get("disagg_prefill_dp_rank")


def test_the_prefill_rank_is_the_one_that_the_router_chose(prefill: Any) -> None:
    assert ranks(prefill(routing={"dp_rank": 1, "prefill_dp_rank": 0})) == (1, 1)


@pytest.mark.parametrize(("room", "rank"), [(76, 0), (77, 1)])
def test_without_a_choice_the_room_decides_as_it_does_on_decode(
    prefill: Any, room: int, rank: int
) -> None:
    info = {**ROUTED, "bootstrap_room": room}
    assert ranks(prefill(bootstrap_info=info)) == (rank, rank)
    unset = {"dp_rank": RANK_UNSET, "prefill_dp_rank": RANK_UNSET}
    assert ranks(prefill(bootstrap_info=info, routing=unset)) == (rank, rank)


def test_a_balance_of_the_operators_choice_is_left_to_sglang(limits: EngineLimits) -> None:
    call = map_prefill(request(bootstrap_info=ROUTED), limits, OURS, follows_room=False)
    assert ranks(call) == (None, None)


def test_one_rank_needs_no_choice(limits: EngineLimits) -> None:
    one = msgspec.structs.replace(limits, dp_ranks=1)
    assert ranks(map_prefill(request(bootstrap_info=ROUTED), one, OURS)) == (None, None)


def test_decode_is_told_which_rank_has_the_cache(limits: EngineLimits) -> None:
    routing = {"dp_rank": 0, "prefill_dp_rank": 3}
    call = map_request(request(bootstrap_info=ROUTED, routing=routing), limits, remote_prefill=True)
    assert (call.fields["routed_dp_rank"], call.fields["disagg_prefill_dp_rank"]) == (0, 3)


def test_a_rank_that_no_router_chose_is_not_told_to_decode(limits: EngineLimits) -> None:
    unset = {"dp_rank": RANK_UNSET, "prefill_dp_rank": RANK_UNSET}
    call = map_request(request(bootstrap_info=ROUTED, routing=unset), limits, remote_prefill=True)
    assert ranks(call) == (None, None)


def test_decode_takes_the_address_from_a_prefill_that_was_waited_for(
    limits: EngineLimits,
) -> None:
    waited = request(prefill_result={"disaggregated_params": ROUTED})
    fields = map_request(waited, limits, remote_prefill=True).fields
    assert {name: fields[name] for name in ROUTED} == ROUTED


def test_a_wrapped_request_means_the_same_as_a_plain_one(limits: EngineLimits) -> None:
    plain = request(
        bootstrap_info=ROUTED,
        sampling_options={"temperature": 0.5, "seed": 3},
        routing={"dp_rank": 1},
    )
    wrapped = {
        "request": {**request(bootstrap_info=ROUTED), "sampling_options": {"temperature": 0.9}},
        "sampling_params": {"temperature": 0.5, "sampling_seed": 3, "max_new_tokens": 8},
        "routing": {"dp_rank": 1},
    }
    assert map_prefill(wrapped, limits, OURS) == map_prefill(plain, limits, OURS)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"request": 3}, "request: must be an object"),
        ({"request": request(), "sampling_params": {"beams": 2}}, r"sampling_params\.beams"),
        ({"request": request(), "sampling_params": {"n": 2}}, "n: must be 1"),
        ({"request": request(), "sampling_params": {"temperature": "hot"}}, "temperature"),
        (request(bootstrap_info={"bootstrap_room": -1}), "bootstrap_room"),
        (request(bootstrap_info={"bootstrap_port": 70000}), "bootstrap_port"),
        (request(bootstrap_info=[1]), "bootstrap_info: must be an object"),
        (request(output_options={"prompt_logprobs": 1}), "prompt_logprobs: cannot be had"),
        (request(output_options={"logprobs": 129}), "logprobs: must be at most 128"),
        (request(token_ids=[5000]), "outside the vocabulary"),
        ([], "request: must be an object"),
    ],
)
def test_what_cannot_be_prefilled_is_refused_by_name(
    body: Any, words: str, limits: EngineLimits
) -> None:
    with pytest.raises(InvalidRequest, match=words):
        map_prefill(body, limits, OURS)
