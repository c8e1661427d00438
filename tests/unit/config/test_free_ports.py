"""Ports that an engine opens later: free now, and below those that the kernel hands out."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.config import free_ports
from sglang_worker.config.server_args import ATTENTION_PORTS, ATTENTION_PORTS_FROM, overrides

from tests.support import ports
from tests.unit.config.support import parse


def test_a_port_lies_below_the_kernels_own() -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(free_ports.LOWEST <= free_ports.free_port() < lowest for _ in range(20))


def test_tests_never_open_what_an_engine_may_have_chosen() -> None:
    assert all(ports.free_port() < free_ports.LOWEST for _ in range(20))


def test_a_port_that_is_bound_but_not_listened_on_is_not_free() -> None:
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("0.0.0.0", 0))
        assert not free_ports.is_free(keeper.getsockname()[1])


def test_a_block_has_no_taken_port_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {22003, 22010}
    monkeypatch.setattr(free_ports, "HIGHEST", 22020)
    monkeypatch.setattr(free_ports, "is_free", lambda port: port not in taken)
    starts = {free_ports.free_block(5) for _ in range(200)}
    assert starts == {22004, 22005, *range(22011, 22017)}


def test_no_free_block_is_an_error_that_names_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_ports, "is_free", lambda _port: False)
    with pytest.raises(free_ports.ConfigError, match="no 7 free ports in a row between 22000"):
        free_ports.free_block(7)


def test_a_kernel_range_that_begins_lower_leaves_the_choice_to_the_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "range").write_text("1024\t60999\n")
    monkeypatch.setattr(free_ports, "_KERNEL_RANGE", tmp_path / "range")
    assert free_ports.free_port() > 0


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        ((), {"nccl_port"}),
        (("--nccl-port", "23456"), {"nccl_port"}),
        (("--dist-init-addr", "10.0.0.1:5000", "--nnodes", "2"), set()),
        (("--dp-size", "2"), set()),
        (("--dp-size", "2", "--tp-size", "2", "--enable-dp-attention"), {"nccl_port", "port"}),
    ],
)
def test_each_engine_of_a_host_gets_ports_of_its_own(
    flags: tuple[str, ...], chosen: set[str]
) -> None:
    wanted: dict[str, Any] = overrides(parse(*flags), {})
    assert {name for name in ("nccl_port", "port") if wanted.get(name)} == chosen
    if "--nccl-port" in flags:
        assert wanted["nccl_port"] == 23456
    if "port" in chosen:
        first = wanted["port"] + ATTENTION_PORTS_FROM
        assert all(free_ports.is_free(port) for port in range(first, first + ATTENTION_PORTS))


def test_a_port_of_the_operator_stays_for_data_parallel_attention() -> None:
    flags = ("--dp-size", "2", "--tp-size", "2", "--enable-dp-attention", "--port", "31000")
    assert overrides(parse(*flags), {})["port"] == 31000
