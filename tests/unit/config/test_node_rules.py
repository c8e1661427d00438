"""Flags of engines on several nodes, and of their data-parallel ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.errors import ConfigError

ADDRESS = ("--dist-init-addr", "10.0.0.1:5000")
EVENTS = ("--kv-events-config", '{"publisher": "zmq", "endpoint": "tcp://*:65534"}')


def parse(*flags: str) -> None:
    parse_worker_config(["--model-path", str(Path(__file__).parent), *flags], {})


@pytest.mark.parametrize("rank", ["0", "1"])
def test_nodes_with_an_address_are_accepted(rank: str) -> None:
    parse("--nnodes", "2", "--node-rank", rank, *ADDRESS)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--nnodes", "0"), ["--nnodes 0", "1 or more"]),
        (("--nnodes", "2", *ADDRESS, "--node-rank", "2"), ["--node-rank 2", "0 to 1"]),
        (("--node-rank", "1"), ["--node-rank 1", "--nnodes 1"]),
        (("--nnodes", "2", *ADDRESS, "--node-rank", "-1"), ["--node-rank -1"]),
        (("--nnodes", "2"), ["--nnodes 2", "--dist-init-addr"]),
        ((*EVENTS, "--dp-size", "3"), ["--kv-events-config", "3 data-parallel ranks"]),
    ],
)
def test_what_could_only_wait_is_refused_by_name(flags: tuple[str, ...], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(*flags)
    for word in words:
        assert word in str(refused.value)
