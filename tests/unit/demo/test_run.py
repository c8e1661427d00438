"""The demo's way through its steps, with stubs for the frontend and the worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sglang_worker.demo import deployment
from sglang_worker.demo.checkpoints import ensure

from tests.support import process_table
from tests.support.wait import wait_until

RUNNER = Path(__file__).with_name("run_with_stubs.py")
# SIGTERM only ends a process group that we made, so a test that fails leaves nothing either.
LIMIT_S = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demo")
    ensure(path, ["gdn"])
    return path


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = process_table.descendants()
    yield
    left = process_table.wait_gone(process_table.descendants() - before, deadline_s=5.0)
    process_table.kill(left)
    assert not left


def demo(folder: Path, frontend: str, worker: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(RUNNER), frontend, worker, "--dir", str(folder), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
    )


def outcome(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=LIMIT_S)
    return process.returncode, output


def read_until(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"{text!r} never came:\n{seen}")


def test_the_demo_prints_answers_speed_and_acceptance_length(folder: Path) -> None:
    code, output = outcome(demo(folder, "fine", "fine"))
    assert code == 0, output
    assert output.count("It works.") == 2
    assert "tokens/s" in output
    assert "acceptance length: 2.50" in output
    assert "runner draft: Tiny, no linear-attention stamp" in output


def test_a_worker_that_dies_fails_the_demo_with_its_last_lines(folder: Path) -> None:
    code, output = outcome(demo(folder, "fine", "dies"))
    assert code == 1
    assert "the last words of a broken worker" in output
    assert "the worker ended with exit code 3" in output


def test_a_worker_that_never_gets_ready_fails_the_demo(folder: Path) -> None:
    code, output = outcome(demo(folder, "fine", "never-ready"))
    assert code == 1
    assert "worker never-ready starts" in output
    assert "not reached: worker ready" in output


def test_a_refused_question_fails_the_demo(folder: Path) -> None:
    code, output = outcome(demo(folder, "refuses", "fine"))
    assert code == 1
    assert "the frontend answered 503" in output


def test_a_helper_that_ignores_its_end_is_killed(folder: Path) -> None:
    code, output = outcome(demo(folder, "fine", "leaves-a-helper"))
    assert code == 0, output
    assert "had to be killed" in output


def test_serving_prints_curl_lines_and_ends_on_control_c(folder: Path) -> None:
    process = demo(folder, "fine", "fine", "--serve")
    seen = read_until(process, "Ctrl-C stops everything")
    assert "curl -s http://127.0.0.1:" in seen
    process.send_signal(signal.SIGINT)
    code, output = outcome(process)
    assert code == 0, output


def test_a_worker_that_dies_while_serving_ends_the_serving(folder: Path) -> None:
    process = demo(folder, "fine", "fine", "--serve")
    read_until(process, "Ctrl-C stops everything")
    worker = next(
        one for one in process_table.descendants(process.pid) if "worker fine" in one.command
    )
    os.kill(worker.pid, signal.SIGKILL)
    code, output = outcome(process)
    assert code == 1
    assert "the worker ended with signal SIGKILL" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_waiting_stops_everything(folder: Path, number: signal.Signals) -> None:
    process = demo(folder, "fine", "never-ready")
    read_until(process, "worker:")
    process.send_signal(number)
    code, _ = outcome(process)
    assert code == 128 + number


def test_a_second_signal_kills_at_once(folder: Path) -> None:
    process = demo(folder, "fine", "leaves-a-helper", "--serve")
    read_until(process, "Ctrl-C stops everything")
    process.send_signal(signal.SIGTERM)
    read_until(process, "stopping (SIGTERM)")
    process.send_signal(signal.SIGTERM)
    code, _ = outcome(process)
    assert code == 128 + signal.SIGTERM
    wait_until(lambda: not process_table.descendants(process.pid), "all are gone")


def test_the_processes_get_the_callers_environment_without_its_dynamo_settings() -> None:
    place = deployment.Deployment(Path("m"), Path("d"), 1, 2)
    caller = {"HOME": "/h", "DYN_NAMESPACE": "x", "SGLANG_ANY": "y", "DYN_LOG": "debug"}
    environ = deployment.child_environment(place, caller)
    assert environ["HOME"] == "/h"
    assert environ["DYN_LOG"] == "debug"
    assert environ["DYN_FILE_KV"] == "d"
    assert "DYN_NAMESPACE" not in environ
    assert "SGLANG_ANY" not in environ


def test_the_demo_asks_for_the_reference_platform_only_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = deployment.Deployment(Path("m"), Path("d"), 1, 2)
    variable = deployment.PLATFORM_VARIABLE
    monkeypatch.setattr(deployment, "gpu_nodes", list)
    assert deployment.child_environment(place, {})[variable] == "on"
    assert deployment.child_environment(place, {variable: "off"})[variable] == "off"
    assert variable not in deployment.child_environment(place, {"SGLANG_PLATFORM": "other"})
    monkeypatch.setattr(deployment, "gpu_nodes", lambda: ["/dev/nvidia0"])
    assert variable not in deployment.child_environment(place, {})


def test_a_port_that_is_taken_is_not_handed_out() -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert deployment.free_port(port) != port
