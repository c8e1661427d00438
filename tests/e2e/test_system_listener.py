"""The public port of a real worker beside the runtime's own server, from start to exit."""

from __future__ import annotations

import http.client
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.checkpoints import checkpoint
from tests.support.client import HttpClient
from tests.support.ports import free_port
from tests.support.stack import Stack, Worker
from tests.support.wait import wait_until

pytestmark = pytest.mark.e2e

GONE = (OSError, http.client.HTTPException)


class Deployment:
    """One worker; ``runtime`` talks to the runtime's own server on the metadata port."""

    def __init__(self, folder: Path) -> None:
        self.stack = Stack(folder)
        metadata_port = free_port()
        self.worker: Worker = self.stack.start_worker(
            "--model-path",
            str(checkpoint("gdn")),
            "--engine-route",
            "flush_cache",
            environ={
                "DYN_SGL_METADATA_PORT": str(metadata_port),
                "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
            },
        )
        assert self.worker.system is not None
        self.system: HttpClient = self.worker.system
        self.runtime = HttpClient(f"http://127.0.0.1:{metadata_port}", timeout_s=10)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    started = Deployment(tmp_path_factory.mktemp("listener"))
    yield started
    started.stack.stop()


# The tests of this module follow one worker through its life, in order.


def test_probes_answer_long_before_the_engine_is_there(deployment: Deployment) -> None:
    live = wait_until(
        lambda: deployment.system.get("/live"), "the port answers", deadline_s=10, ignore=GONE
    )
    assert live.status == 200
    startup = deployment.system.get("/startup")
    assert startup.status == 503
    assert startup.json()["phase"] in {"loading", "warming", "capturing", "compiling"}
    assert deployment.system.get("/health").status == 503
    assert deployment.system.get("/ready").status == 503


def test_a_registered_worker_is_started_and_ready(deployment: Deployment) -> None:
    lives: dict[str, set[int]] = defaultdict(set)

    def is_ready() -> bool:
        phase = deployment.system.get("/startup").json()["phase"]
        lives[phase].add(deployment.system.get("/live").status)
        return deployment.system.get("/ready").status == 200

    deployment.worker.wait_for(is_ready, "the worker is ready", deadline_s=180)
    assert "warming" in lives, "then the runtime itself still answers 503"
    assert all(seen == {200} for seen in lives.values()), lives
    assert deployment.system.get("/startup").json() == {"phase": "registered"}
    status = deployment.system.get("/engine/status").json()
    assert (status["state"], status["reason"]) == ("serving", None)
    assert status["worker_id"].isdigit()


@pytest.mark.parametrize("path", ["/health", "/live", "/metrics", "/metadata"])
def test_the_runtimes_own_answers_come_through_unchanged(deployment: Deployment, path: str) -> None:
    ours, theirs = deployment.system.get(path), deployment.runtime.get(path)
    assert ours.status == theirs.status
    assert ours.headers["content-type"] == theirs.headers["content-type"]
    if path == "/metrics":
        assert "dynamo_" in ours.text
        assert {line.split("{")[0] for line in ours.text.splitlines() if line[:1] == "#"} == {
            line.split("{")[0] for line in theirs.text.splitlines() if line[:1] == "#"
        }
    elif path == "/metadata":
        assert ours.body == theirs.body


def test_the_metadata_port_carries_no_worker_routes(deployment: Deployment) -> None:
    for path in ("/engine/status", "/engine/drain", "/engine/server_info", "/engine/flush_cache"):
        assert deployment.runtime.get(path).status == 404, path
        assert deployment.runtime.post(path, {}).status in (404, 405), path


def test_engine_routes_answer_beside_it(deployment: Deployment) -> None:
    assert deployment.system.post("/engine/flush_cache").json()["success"] is True
    info = deployment.system.get("/engine/server_info").json()
    assert info["linear_attn_runners"][0]["runner"] == "target"
    overview = deployment.system.get("/engine").json()
    assert "/engine/flush_cache" in {route["path"] for route in overview["routes"]}


def test_live_answers_until_the_process_is_gone(deployment: Deployment) -> None:
    probe = HttpClient(deployment.system.base_url, timeout_s=5)
    deployment.worker.send(signal.SIGTERM)
    lives: list[int] = []
    healths: list[int] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            lives.append(probe.get("/live").status)
            healths.append(probe.get("/health").status)
        except GONE:
            break
    assert deployment.worker.wait_exit(30) == 0
    assert set(lives) == {200}
    assert healths[-1] == 503
