"""The runtime's own port: refused when taken, kept while the engine loads, missed when absent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from sglang_worker.config import free_ports
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    RuntimeSettings,
    SystemSettings,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.errors import ConfigError
from sglang_worker.system import metadata_ports

from tests.support.ports import free_block

OPEN = """
import asyncio, sys
from sglang_worker.boot.runtime import open_runtime
from sglang_worker.errors import RuntimeServerError
from tests.unit.system.test_metadata_ports import config

async def main():
    try:
        open_runtime(config(int(sys.argv[1])), asyncio.get_running_loop())
    except RuntimeServerError as error:
        sys.exit(f"refused: {error}")
    print("opened", flush=True)

asyncio.run(main())
"""


def config(metadata_port: int, gateways: int = 1, host: str = "127.0.0.1") -> WorkerConfig:
    return WorkerConfig(
        worker_type=WorkerType.AGGREGATED,
        endpoint=EndpointAddress("dynamo", "backend", "generate"),
        engine=EngineFlags(),
        runtime=RuntimeSettings(discovery_backend="file", event_plane="zmq"),
        system=SystemSettings(host=host, port=0, metadata_port=metadata_port),
        gateway_workers=gateways,
    )


def listening(port: int, host: str = "127.0.0.1") -> socket.socket:
    return socket.create_server((host, port))


def opened(port: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a process says that opens its runtime with this port."""
    variables = {
        "DYN_SYSTEM_HOST": "127.0.0.1",
        "DYN_SYSTEM_PORT": str(port),
        "DYN_FILE_KV": str(folder),
    }
    return subprocess.run(
        [sys.executable, "-c", OPEN, str(port)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_a_taken_port_is_refused_by_name(host: str) -> None:
    port = free_block(1)
    with listening(port, "0.0.0.0"), pytest.raises(ConfigError) as caught:
        metadata_ports.held(config(port, host=host)).__enter__()
    assert caught.value.exit_code == 2
    for word in (f"--metadata-port (DYN_SGL_METADATA_PORT)={port}", f"DYN_SYSTEM_HOST={host}"):
        assert word in str(caught.value)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_each_gateway_s_port_is_looked_at(index: int) -> None:
    first = free_block(3)
    with listening(first + index), pytest.raises(ConfigError) as caught:
        metadata_ports.held(config(first, gateways=3)).__enter__()
    assert f"port {first + index}, of gateway {index}," in str(caught.value)
    assert all(free_ports.is_free(port) for port in range(first, first + 3)), "none is kept"


def test_a_port_of_another_address_of_the_host_is_nobody_s_business() -> None:
    port = free_block(1)
    with listening(port, "127.0.0.2"), metadata_ports.held(config(port)):
        pass


def test_without_a_chosen_port_or_a_system_port_nothing_is_held() -> None:
    assert not metadata_ports.chosen(config(0, gateways=2))
    silent = WorkerConfig(
        worker_type=WorkerType.AGGREGATED,
        endpoint=EndpointAddress("dynamo", "backend", "generate"),
        engine=EngineFlags(),
        system=SystemSettings(metadata_port=9000),
    )
    assert not metadata_ports.chosen(silent)


def test_a_held_port_is_passed_by_others_and_open_to_the_runtime(tmp_path: Path) -> None:
    port = free_block(1)
    with metadata_ports.held(config(port)):
        assert not free_ports.is_free(port)
        done = opened(port, tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["opened"]), done.stderr
    assert free_ports.is_free(port)


def test_a_runtime_without_its_server_is_an_error_that_names_the_address(tmp_path: Path) -> None:
    port = free_block(1)
    with listening(port):
        done = opened(port, tmp_path)
    assert done.returncode == 1
    assert f"refused: the runtime's own server could not be opened on 127.0.0.1:{port}" in (
        done.stderr
    )
