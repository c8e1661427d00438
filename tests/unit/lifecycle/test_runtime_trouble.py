"""Drains while the surroundings misbehave: real runtime and frontend, no engine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.drain_proof.ask import ask
from benchmarks.drain_proof.plan import Kind, Request
from tests.support.stack import Worker
from tests.support.wait import wait_until
from tests.unit.lifecycle.deployment import Deployment, post, status, wait_state
from tests.unit.lifecycle.test_runtime_drain import instances, stream

pytestmark = pytest.mark.e2e


def test_a_killed_frontend_does_not_keep_the_worker_from_drained(deployment: Deployment) -> None:
    worker = deployment.stub("worker", "--delay-ms", "200", ready=False)
    frontend = deployment.frontend()
    with ThreadPoolExecutor(1) as pool:
        running = stream(pool, frontend, worker, 200)
        post(worker, "/engine/drain")
        frontend.kill()
        assert running.exception(30) is not None or not running.result().complete
    wait_state(worker, "drained")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB in place of the discovery folder."""
    folder = tmp_path / "discovery"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("may not mount a file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_discovery_folder_refuses_the_registration_and_keeps_admission_open(
    small_disk: Path, deployment: Deployment
) -> None:
    worker = deployment.stub("worker")
    post(worker, "/engine/drain")
    wait_state(worker, "drained")
    junk = small_disk / "junk"
    with junk.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass
    code, body = post(worker, "/engine/resume")
    assert code == 503 and body["state"] == "serving" and body["error"]
    junk.unlink()
    assert post(worker, "/engine/resume")[0] == 200
    assert len(instances(deployment)) == 1


def test_a_read_only_discovery_folder_leaves_the_withdrawal_pending(
    small_disk: Path, deployment: Deployment
) -> None:
    worker = deployment.stub("worker")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    code, body = post(worker, "/engine/drain")
    assert code == 503 and body["reason"] == "discovery_unregister_pending"
    assert status(worker)["state"] == "draining"
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    assert post(worker, "/engine/drain")[0] == 202
    wait_state(worker, "drained")
    assert instances(deployment) == []


def admitted(worker: Worker) -> int:
    """What the gate counts: the runtime receives a request earlier than its handler admits it."""
    assert worker.system is not None
    return int(worker.system.get("/engine").json()["details"]["in_flight"])


def test_a_thousand_idle_streams_drain_and_are_counted_fast_enough(deployment: Deployment) -> None:
    streams = 1000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * streams:
        pytest.skip("needs more open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    worker = deployment.stub("worker", "--delay-ms", "4000", ready=False)
    frontend = deployment.frontend()

    async def run() -> float:
        asks = [
            asyncio.ensure_future(
                ask(frontend.http_port, Request(number, Kind.STREAM, "idle", 3), "stub")
            )
            for number in range(streams)
        ]
        await asyncio.to_thread(
            wait_until,
            lambda: admitted(worker) == streams,
            "the worker has admitted every stream",
        )
        assert (await asyncio.to_thread(post, worker, "/engine/drain"))[0] == 202
        results = await asyncio.gather(*asks)
        last_byte_s = max(result.last_byte_s for result in results)
        assert [result.error for result in results] == [None] * streams
        await asyncio.to_thread(wait_state, worker, "drained")
        return time.monotonic() - last_byte_s

    took_s = asyncio.run(run())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert took_s < 2.5  # the goal is 0.25 s on an idle machine
