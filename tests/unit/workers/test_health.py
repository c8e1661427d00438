from __future__ import annotations

from types import SimpleNamespace

from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import map_request
from sglang_worker.workers.health import generate_payload
from sglang_worker.workers.probes import probe_test

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
