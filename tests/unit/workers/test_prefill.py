"""The prefill handler, its chunks and the health payloads of both sides."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.config.worker_config import WorkerType
from sglang_worker.engine import compat_disagg, dynamo_compat
from sglang_worker.requests.disaggregation import BootstrapAddress
from sglang_worker.requests.errors import EndedByEngine
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import map_request
from sglang_worker.requests.prefill import map_prefill
from sglang_worker.workers.disaggregated_decode import with_pretended_transfer
from sglang_worker.workers.health import for_rank, generate_payload
from sglang_worker.workers.peers import peer_address
from sglang_worker.workers.prefill import wrapped_payload
from sglang_worker.workers.prefill_handler import PrefillChunkWriter, PrefillHandler
from sglang_worker.workers.probes import probe_test

from tests.unit.config.support import parse

LIMITS = EngineLimits(vocab_size=100, context_length=64, dp_ranks=2)
OURS = BootstrapAddress("127.0.0.1", 8998)
REQUEST = {"token_ids": [5, 6, 7], "stop_conditions": {"max_tokens": 9}}


def output(tokens: list[int], finish: dict[str, Any] | None) -> dict[str, Any]:
    meta = {
        "finish_reason": finish,
        "prompt_tokens": 3,
        "completion_tokens": len(tokens),
        "cached_tokens": 2,
    }
    return {"output_ids": tokens, "meta_info": meta}


def test_the_last_chunk_tells_the_end_and_the_cache_but_no_token() -> None:
    writer = PrefillChunkWriter(map_prefill(REQUEST, LIMITS, OURS))
    chunk = writer.write(output([8], {"type": "length", "length": 1}))
    assert chunk is not None
    assert (chunk["token_ids"], chunk["finish_reason"]) == ([], "length")
    assert chunk["engine_data"]["kv_cache_hit"] == {"prompt_tokens": 3, "reused_tokens": 2}
    assert chunk["completion_usage"]["prompt_tokens_details"] == {"cached_tokens": 2}


def test_what_comes_before_the_end_is_not_sent() -> None:
    writer = PrefillChunkWriter(map_prefill(REQUEST, LIMITS, OURS))
    assert writer.write(output([8], None)) is None


def test_a_transfer_that_failed_is_no_success() -> None:
    writer = PrefillChunkWriter(map_prefill(REQUEST, LIMITS, OURS))
    with pytest.raises(EndedByEngine, match="no peer"):
        writer.write(output([], {"type": "abort", "message": "no peer"}))


class Gate:
    def __init__(self) -> None:
        self.inside = 0

    def admit(self, *, probe: bool = False) -> Gate:
        self.inside += 1
        return self

    def release(self) -> None:
        self.inside -= 1


async def test_a_faulty_request_is_refused_before_decode_is_told_anything() -> None:
    gate = Gate()
    handler = PrefillHandler(OURS, True, None, LIMITS, gate, lambda request: False)
    with pytest.raises(Exception, match="bootstrap_room") as caught:
        async for _ in handler.generate(
            {**REQUEST, "bootstrap_info": {"bootstrap_room": -1}}, None
        ):
            pytest.fail("a chunk was sent")
    assert isinstance(caught.value, type(dynamo_compat.invalid_argument("")))
    assert gate.inside == 0


def test_the_prefill_probe_is_wrapped_marked_and_needs_no_peer() -> None:
    key = dynamo_compat.health_check_key()
    payload = wrapped_payload(generate_payload(key, None, 100), port=8998)
    assert set(payload) == {"request", "sampling_params", key}
    assert probe_test(key)(payload)
    fields = map_prefill(payload, LIMITS, OURS).fields
    assert fields["bootstrap_host"] == compat_disagg.fake_bootstrap_host()
    assert fields["sampling_params"]["max_new_tokens"] == 1


def test_the_prefill_probe_reaches_every_data_parallel_rank() -> None:
    key = dynamo_compat.health_check_key()
    payload = wrapped_payload(generate_payload(key, None, 100), port=8998)
    ranks = [
        map_prefill(for_rank(payload, rank), LIMITS, OURS).fields["routed_dp_rank"]
        for rank in range(2)
    ]
    assert ranks == [0, 1]


def test_the_decode_probe_pretends_the_transfer() -> None:
    key = dynamo_compat.health_check_key()
    payload = with_pretended_transfer(generate_payload(key, None, 100), port=8998)
    fields = map_request(payload, LIMITS, remote_prefill=True).fields
    assert fields["bootstrap_host"] == compat_disagg.fake_bootstrap_host()
    assert probe_test(key)(payload)


def test_an_operators_own_probe_keeps_what_it_names() -> None:
    key = dynamo_compat.health_check_key()
    own = {"token_ids": [3], "bootstrap_info": {"bootstrap_room": 5}, key: True}
    assert with_pretended_transfer(own, port=1)["bootstrap_info"] == {"bootstrap_room": 5}
    wrapped = {"request": own, key: True}
    assert wrapped_payload(wrapped, port=1) is wrapped


@pytest.mark.parametrize(
    ("flags", "peer"),
    [
        (("--disaggregation-mode", "prefill"), "dynamo.backend.generate"),
        (("--disaggregation-mode", "decode"), "dynamo.prefill.generate"),
        ((), None),
        # Nothing tells where the peers of a component with another name are.
        (("--disaggregation-mode", "decode", "--endpoint", "dyn://a.b.generate"), None),
        # There an instance is listed once its Pod is ready: two would wait for each other.
        (("--disaggregation-mode", "decode", "--discovery-backend", "kubernetes"), None),
    ],
)
def test_each_side_waits_for_the_other_where_it_can_know_it(
    flags: tuple[str, ...], peer: str | None
) -> None:
    address = peer_address(parse(*flags))
    assert (None if address is None else address.path) == peer


def test_prefill_and_decode_are_served() -> None:
    from sglang_worker.workers.table import ROWS

    assert not ROWS[WorkerType.PREFILL].drainable
    assert not ROWS[WorkerType.DECODE].drainable
