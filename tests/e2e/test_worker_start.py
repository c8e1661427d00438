"""How a worker starts and fails to start: one clear line, the right code, nothing left."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.ports import free_block
from tests.support.stack import Stack, Worker

pytestmark = pytest.mark.e2e


def last_line(log: str) -> str:
    return [line for line in log.splitlines() if line.strip()][-1]


BAD_FLAGS = {
    "--no-such-flag": ("--model-path", "some/model", "--no-such-flag"),
    "/no/such/model": ("--model-path", "/no/such/model"),
    "tp-size": ("--model-path", "some/model", "--tp-size", "many"),
    "--embedding-worker": (
        *("--model-path", "some/model", "--embedding-worker"),
        *("--dllm-algorithm", "x"),
    ),
}


@pytest.fixture(scope="module")
def refused() -> Iterator[dict[str, Worker]]:
    """Workers with a bad flag, by the word that names it, all started at once."""
    with Stack() as stack:
        yield {
            words: stack.start_worker(*flags, with_system_port=False)
            for words, flags in BAD_FLAGS.items()
        }


@pytest.mark.parametrize("words", BAD_FLAGS)
def test_a_bad_flag_is_one_line_and_code_2(refused: dict[str, Worker], words: str) -> None:
    worker = refused[words]
    assert worker.wait_exit(60) == 2
    assert last_line(worker.log()).startswith("configuration error: ")
    assert words in last_line(worker.log())
    assert "Traceback" not in worker.log()


def test_an_occupied_port_is_one_line_and_nothing_is_loaded(
    stack: Stack, checkpoint: Callable[[str], Path]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        worker = stack.start_worker("--model-path", str(checkpoint("gdn")), system_port=port)
        assert worker.wait_exit(60) == 2
    assert str(port) in last_line(worker.log())
    assert "Traceback" not in worker.log()


@pytest.mark.parametrize("gateways", [1, 2])
def test_an_occupied_metadata_port_is_one_line_and_nothing_is_loaded(
    stack: Stack, checkpoint: Callable[[str], Path], gateways: int
) -> None:
    first = free_block(gateways)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first + gateways - 1))
        taken.listen()
        worker = stack.start_worker(
            *("--model-path", str(checkpoint("gdn")), "--metadata-port", str(first)),
            *("--gateway-workers", str(gateways)),
        )
        assert worker.wait_exit(60) == 2
    line = last_line(worker.log())
    assert f"--metadata-port (DYN_SGL_METADATA_PORT)={first}: port {first + gateways - 1}" in line
    assert "Traceback" not in worker.log()
    worker.check_nothing_left(5.0)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_engine_loads_leaves_nothing_behind(
    stack: Stack, checkpoint: Callable[[str], Path], signum: int
) -> None:
    worker = stack.start_worker("--model-path", str(checkpoint("gdn")), with_system_port=False)
    worker.wait_log("Load weight begin|Init torch distributed|Memory baseline", deadline_s=120)
    worker.send(signum)
    assert worker.wait_exit(30) == 0
    worker.check_nothing_left(5.0)


def test_a_kill_while_the_engine_loads_leaves_nothing_behind(
    stack: Stack, checkpoint: Callable[[str], Path]
) -> None:
    worker = stack.start_worker("--model-path", str(checkpoint("gdn")), with_system_port=False)
    worker.wait_log("engine processes start|server_args=", deadline_s=120)
    worker.members()
    worker.send(signal.SIGKILL)
    worker.wait_exit(30)
    worker.check_nothing_left(5.0)


def test_a_model_that_cannot_be_loaded_is_an_error_line_and_code_1(
    stack: Stack, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in checkpoint("gdn").iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    for weights in broken.glob("*.safetensors"):
        weights.write_bytes(b"not a weight file")
    worker = stack.start_worker("--model-path", str(broken), with_system_port=False)
    assert worker.wait_exit(120) == 1
    assert last_line(worker.log()).startswith("error: the engine failed to start")
    worker.check_nothing_left(5.0)
