"""What ``--kv-events-config`` accepts, and where its streams are."""

from __future__ import annotations

import json

import pytest
from sglang_worker.engine.compat_streams import event_endpoint
from sglang_worker.errors import ConfigError
from sglang_worker.observability.kv_events import settings
from sglang_worker.observability.kv_events.sources import sources_of

PLAIN = {"publisher": "zmq", "endpoint": "tcp://*:5557"}


def parsed(**changes: object) -> settings.KvEventSettings | None:
    return settings.parse(json.dumps(PLAIN | changes))


@pytest.mark.parametrize("text", [None, "", "{}", '{"publisher": "null", "endpoint": 7}'])
def test_without_a_publisher_events_are_off(text: str | None) -> None:
    assert settings.parse(text) is None


def test_the_endpoint_defaults_to_that_of_sglang() -> None:
    found = settings.parse('{"publisher": "zmq"}')
    assert found is not None
    assert found.endpoint.text() == "tcp://*:5557"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", ["no JSON"]),
        ("[]", ["JSON object"]),
        ('{"publisher": "kafka"}', ["publisher", '"kafka"', '"zmq"']),
        ('{"publisher": ["zmq"]}', ["publisher"]),
        ('{"publisher": "zmq", "endpoint": "inproc://x"}', ["endpoint", "tcp://*"]),
        ('{"publisher": "zmq", "endpoint": "tcp://*:0"}', ["endpoint", "1 to 65535"]),
        ('{"publisher": "zmq", "endpoint": "tcp://*:99999"}', ["endpoint", "1 to 65535"]),
        ('{"publisher": "zmq", "endpoint": 5557}', ["endpoint", "5557"]),
        ('{"publisher": "zmq", "replay_endpoint": "x"}', ["replay_endpoint", '"x"']),
        ('{"publisher": "zmq", "topic": 1}', ["topic"]),
        ('{"publisher": "zmq", "bind": "yes"}', ["bind", '"yes"']),
        ('{"publisher": "zmq", "bind": false}', ["nobody would listen", "bind"]),
        ('{"publisher": "zmq", "endpoint": "tcp://10.0.0.1:5557"}', ["10.0.0.1", '"bind": true']),
    ],
)
def test_what_cannot_work_is_refused_by_name(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        settings.parse(text)
    assert settings.FLAG in str(refused.value)
    for word in words:
        assert word in str(refused.value)


def test_a_concrete_address_is_fine_when_it_is_bound() -> None:
    found = parsed(endpoint="tcp://127.0.0.1:5557", bind=True)
    assert found is not None
    assert found.endpoint.host == "127.0.0.1"


def test_every_rank_needs_a_port() -> None:
    found = parsed(endpoint="tcp://*:65534")
    assert found is not None
    settings.check_ports(found, 2)
    with pytest.raises(ConfigError, match=r"3 data-parallel ranks.*at most port 65533"):
        settings.check_ports(found, 3)


def test_the_format_of_the_router_is_chosen_unless_the_operator_chose_one() -> None:
    assert json.loads(settings.with_router_format(json.dumps(PLAIN)))["format"] == "dynamo"
    own = json.dumps(PLAIN | {"format": "default"})
    assert settings.with_router_format(own) == own


def test_ranks_are_found_where_sglang_binds_them() -> None:
    found = parsed(topic="kv")
    assert found is not None
    sources = sources_of(found, range(2, 4), 16, event_endpoint)
    assert [(one.dp_rank, one.endpoint, one.topic, one.block_tokens) for one in sources] == [
        (2, "tcp://127.0.0.1:5559", "kv", 16),
        (3, "tcp://127.0.0.1:5560", "kv", 16),
    ]


def test_an_ipv6_address_keeps_its_brackets() -> None:
    found = parsed(endpoint="tcp://[fd00::1]:5557", bind=True)
    assert found is not None
    assert sources_of(found, [1], 1, event_endpoint)[0].endpoint == "tcp://[fd00::1]:5558"
