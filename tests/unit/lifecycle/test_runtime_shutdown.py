"""Signals and engine death on the real Dynamo runtime and frontend; the workers have no engine."""

from __future__ import annotations

import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.wait import wait_until
from tests.unit.lifecycle.deployment import Deployment, post, status, wait_state
from tests.unit.lifecycle.test_runtime_drain import ask, stream

pytestmark = pytest.mark.e2e


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_requests_finish_and_exits_0(
    deployment: Deployment, pool: ThreadPoolExecutor, signum: int
) -> None:
    worker = deployment.stub("worker", "--delay-ms", "20", ready=False)
    frontend = deployment.frontend()
    running = stream(pool, frontend, worker, 80)
    worker.send(signum)
    wait_until(lambda: status(worker)["state"] == "stopping", "the listener says stopping")
    wait_until(lambda: status(worker)["reason"] == "dynamo_inflight", "it names what it waits for")
    assert post(worker, "/engine/resume")[0] == 409
    result = running.result(30)
    assert result.complete and len(result.text) == 80
    assert worker.wait_exit(20) == 0
    assert "deferred handlers" in worker.log()


def test_a_drained_worker_stops_without_paying_the_grace_again(deployment: Deployment) -> None:
    worker = deployment.stub("worker", grace_s=3.0)
    post(worker, "/engine/drain")
    wait_state(worker, "drained")
    worker.send(signal.SIGTERM)
    began_s = time.monotonic()
    assert worker.wait_exit(20) == 0
    assert "stopped in 0." in worker.log()
    assert time.monotonic() - began_s < 3.0


def test_a_paused_worker_continues_before_it_stops(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    worker = deployment.stub("worker", "--delay-ms", "5", ready=False)
    frontend = deployment.frontend()
    running = stream(pool, frontend, worker, 50)
    assert post(worker, "/engine/pause")[0] == 200
    worker.send(signal.SIGTERM)
    result = running.result(30)
    assert result.complete and len(result.text) == 50
    assert worker.wait_exit(20) == 0


def test_what_the_budget_cuts_off_continues_on_another_worker(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    first = deployment.stub("first", "--delay-ms", "50", "--shutdown-timeout", "2", ready=False)
    frontend = deployment.frontend(migration_limit=3)
    running = stream(pool, frontend, first, 100)
    second = deployment.stub("second", "--delay-ms", "5")
    first.send(signal.SIGTERM)
    assert first.wait_exit(20) == 0
    result = running.result(30)
    assert result.complete and not result.errors
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    start = alphabet.index(result.text[0])
    assert result.text == "".join(alphabet[(start + i) % 26] for i in range(100))
    assert "request completed" in second.log()


def test_a_worker_without_listener_stops_as_gracefully(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    worker = deployment.stub("worker", "--delay-ms", "20", with_system_port=False, ready=False)
    frontend = deployment.frontend()
    running = stream(pool, frontend, worker, 60)
    worker.send(signal.SIGTERM)
    assert running.result(30).complete
    assert worker.wait_exit(20) == 0


def test_a_second_signal_leaves_at_once(deployment: Deployment) -> None:
    worker = deployment.stub("worker", grace_s=10.0)
    worker.send(signal.SIGTERM)
    worker.wait_log("stopping")
    worker.send(signal.SIGTERM)
    assert worker.wait_exit(5) == 128 + signal.SIGTERM


def test_engine_death_hands_running_requests_over_and_exits_71(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    first = deployment.stub("first", "--delay-ms", "50", ready=False)
    frontend = deployment.frontend(migration_limit=3)
    running = stream(pool, frontend, first, 60)
    deployment.stub("second", "--delay-ms", "5")
    began_s = time.monotonic()
    post(first, "/engine/die")
    assert first.wait_exit(10) == 71
    assert time.monotonic() - began_s < 5.0
    result = running.result(30)
    assert result.complete and len(result.text) == 60 and not result.errors
    assert {ask(frontend).status for _ in range(5)} == {200}


def test_a_failing_discovery_does_not_keep_a_worker_from_stopping(deployment: Deployment) -> None:
    worker = deployment.stub("worker", "--shutdown-timeout", "4")
    deployment.kv_folder.rename(deployment.kv_folder.with_name("away"))
    deployment.kv_folder.write_text("no folder")
    worker.send(signal.SIGTERM)
    assert worker.wait_exit(15) == 0
    assert "discovery has not confirmed" in worker.log()


def test_a_stage_that_blocks_the_loop_ends_with_70_and_every_stack(deployment: Deployment) -> None:
    worker = deployment.stub("worker", "--hang", "--shutdown-timeout", "2")
    worker.send(signal.SIGTERM)
    assert worker.wait_exit(20) == 70
    assert "'runtime shutdown' hangs" in worker.log()
    assert "stub_worker.py" in worker.log()
