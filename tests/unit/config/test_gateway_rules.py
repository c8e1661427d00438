"""``--gateway-workers``: the count, and what is refused beside it."""

from __future__ import annotations

import json

import pytest
from sglang_worker.config.parse import parse_early, parse_worker_config
from sglang_worker.errors import ConfigError

GATEWAYS = ("--model-path", "some/model", "--gateway-workers", "2")


def refusal(*flags: str, **variables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_worker_config(flags, variables)
    return str(caught.value)


def test_a_group_of_gateways_is_an_ordinary_aggregated_worker() -> None:
    events = json.dumps({"publisher": "zmq", "endpoint": "tcp://*:5557"})
    config = parse_worker_config(
        (*GATEWAYS, "--tp-size", "2", "--enable-metrics", "--kv-events-config", events), {}
    )
    assert config.gateway_workers == 2


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--disaggregation-mode", "prefill"), ["--gateway-workers=2", "prefill", "aggregated"]),
        (("--embedding-worker",), ["--gateway-workers=2", "embedding"]),
        (("--enable-multimodal",), ["--gateway-workers=2", "native_multimodal"]),
        (("--enable-lora",), ["--enable-lora", "--gateway-workers=2"]),
        (("--skip-tokenizer-init",), ["--skip-tokenizer-init"]),
        (("--dp-size", "2"), ["--dp-size", "were not tried"]),
        (("--nnodes", "2", "--dist-init-addr", "h:1"), ["--nnodes", "were not tried"]),
        (("--enable-forward-pass-metrics",), ["--enable-forward-pass-metrics", "one instance"]),
        (("--tokenizer-worker-num", "3"), ["--tokenizer-worker-num=3", "--gateway-workers 3"]),
        (("--engine-route", "hold=pause_generation:tm"), ["hold=pause_generation:tm", "accepted"]),
        (("--metadata-port", "32767"), ["--metadata-port=32767", "32768"]),
    ],
)
def test_what_gateways_cannot_do_is_refused_by_name(
    flags: tuple[str, ...], words: list[str]
) -> None:
    text = refusal(*GATEWAYS, *flags)
    assert all(word in text for word in words), text


def test_the_metadata_ports_of_all_gateways_leave_the_listener_its_own() -> None:
    text = refusal(*GATEWAYS, "--metadata-port", "9000", DYN_SYSTEM_PORT="9001")
    assert "9000 to 9001" in text and "DYN_SYSTEM_PORT" in text


def test_several_tokenizers_alone_lead_to_gateways() -> None:
    text = refusal("--model-path", "some/model", "--tokenizer-worker-num", "2")
    assert "use --gateway-workers 2" in text


def test_routes_that_ask_the_schedulers_alone_are_kept() -> None:
    given = parse_early((*GATEWAYS, "--engine-route", "cache/flush=flush_cache"), {})
    assert given.own["engine_routes"] == ("cache/flush=flush_cache",)
