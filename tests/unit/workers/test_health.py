from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import map_request
from sglang_worker.workers.health import check_override, for_rank, generate_payload, normal_end
from sglang_worker.workers.probes import probe_test, with_probes

KEY = "_HEALTH"


def test_the_probe_is_a_valid_request_for_one_token() -> None:
    payload = generate_payload(KEY, SimpleNamespace(bos_token_id=None), 10)
    call = map_request(payload, EngineLimits(vocab_size=10, context_length=16))
    assert call.max_tokens == 1
    assert call.fields["input_ids"] == [1]


def test_the_probe_begins_as_the_model_expects_when_that_is_known() -> None:
    assert generate_payload(KEY, SimpleNamespace(bos_token_id=7), 10)["token_ids"] == [7]
    assert generate_payload(KEY, SimpleNamespace(bos_token_id=70), 10)["token_ids"] == [1]
    assert generate_payload(KEY, None, 1)["token_ids"] == [0]


def test_probes_are_recognised_and_an_operators_own_payload_as_well() -> None:
    is_probe = probe_test(KEY)
    assert is_probe(generate_payload(KEY, None, 10))
    assert is_probe(generate_payload(KEY, None, 10, {"token_ids": [3]}))
    assert not is_probe({"token_ids": [3]})
    assert not is_probe({"token_ids": [3], KEY: "true"})
    assert not is_probe(None)


@pytest.mark.parametrize(
    "chunks",
    [
        [{"token_ids": [1], "finish_reason": "length"}],
        [{"token_ids": [1]}, {"token_ids": [], "finish_reason": "stop"}],
        [{"data": [{"embedding": [0.1]}]}],
        ["data: whatever"],
    ],
)
def test_a_normal_answer_passes(chunks: list[object]) -> None:
    assert normal_end(chunks) is None


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        ([], "nothing"),
        ([{"token_ids": [1]}], "finish reason"),
        ([{"token_ids": [1], "finish_reason": "cancelled"}], "cancelled"),
        ([{"token_ids": [1], "finish_reason": {"type": "abort"}}], "abort"),
        ([{"error": "no storage"}], "no storage"),
        ([{"status": "error", "message": "broken"}], "broken"),
    ],
)
def test_any_other_end_is_named(chunks: list[object], words: str) -> None:
    assert words in str(normal_end(chunks))


def test_a_probe_is_addressed_to_its_rank_as_the_router_does_it() -> None:
    limits = EngineLimits(vocab_size=10, context_length=16, dp_ranks=2)
    payload = generate_payload(KEY, None, 10)
    assert map_request(for_rank(payload, 1), limits).fields["routed_dp_rank"] == 1
    assert "routing" not in payload


def test_a_wrapped_probe_is_addressed_inside_and_its_room_follows() -> None:
    wrapped = {"request": {"token_ids": [1], "bootstrap_info": {"bootstrap_room": 0}}, KEY: True}
    inner = for_rank(wrapped, 3)["request"]
    assert inner["routing"] == {"dp_rank": 3}
    assert inner["bootstrap_info"] == {"bootstrap_room": 3}


def test_an_operators_payload_that_the_worker_would_refuse_stops_the_start() -> None:
    limits = EngineLimits(vocab_size=10, context_length=16)

    def accept(payload: Mapping[str, Any]) -> object:
        return map_request(payload, limits)

    check_override(None, accept)
    check_override({"token_ids": [3]}, accept)
    with pytest.raises(ConfigError, match=r"DYN_HEALTH_CHECK_PAYLOAD.*token_ids"):
        check_override({"token_ids": [30]}, accept)


def test_only_the_runtimes_probes_are_answered_by_the_judge() -> None:
    def serve(request: Any, context: Any) -> Any:
        return "served"

    def answer(request: Any, context: Any) -> Any:
        return "judged"

    handle = with_probes(serve, probe_test(KEY), answer)
    assert handle(generate_payload(KEY, None, 10), None) == "judged"
    assert handle({"token_ids": [3]}, None) == "served"
