"""The ranks' meeting port is refused when taken, and kept from others until the engine is up."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_worker.config.free_ports import free_port, is_free
from sglang_worker.engine import rendezvous
from sglang_worker.errors import ConfigError


def arguments(**changed: Any) -> Any:
    return SimpleNamespace(**{"node_rank": 0, "dist_init_addr": None, "nccl_port": None, **changed})


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield int(listener.getsockname()[1])


def test_a_taken_nccl_port_is_named(taken: int) -> None:
    with (
        pytest.raises(ConfigError, match=f"--nccl-port={taken}: port {taken}.*cannot be opened"),
        rendezvous.held(arguments(nccl_port=taken)),
    ):
        pytest.fail("the engine must not be started")


def test_a_taken_dist_init_addr_is_named_with_its_host(taken: int) -> None:
    address = f"10.1.2.3:{taken}"
    with (
        pytest.raises(ConfigError, match=f"--dist-init-addr={address}: port {taken}"),
        rendezvous.held(arguments(dist_init_addr=address, nccl_port=1)),
    ):
        pytest.fail("the engine must not be started")


def test_whoever_does_not_listen_needs_no_port(taken: int) -> None:
    with rendezvous.held(arguments(dist_init_addr=f"10.1.2.3:{taken}", node_rank=1)):
        pass


def test_of_two_workers_that_start_with_one_port_the_second_is_told() -> None:
    port = free_port()
    with (
        rendezvous.held(arguments(nccl_port=port)),
        pytest.raises(ConfigError, match=f"--nccl-port={port}: port {port}.*cannot be opened"),
        rendezvous.held(arguments(nccl_port=port)),
    ):
        pytest.fail("the second engine must not be started")
    with rendezvous.held(arguments(nccl_port=port)):
        pass


def test_nobody_else_finds_the_port_free_while_it_is_held_but_torchs_store_opens_it() -> None:
    from datetime import timedelta

    from torch.distributed import TCPStore

    port = free_port()
    with rendezvous.held(arguments(nccl_port=port)):
        assert not is_free(port)
        store = TCPStore("127.0.0.1", port, 1, is_master=True, timeout=timedelta(seconds=10))
        store.set("here", "yes")
        assert store.get("here") == b"yes"
    assert not is_free(port), "the store's own"
