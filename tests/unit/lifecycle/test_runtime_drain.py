"""Drain and resume on the real Dynamo runtime and frontend; the workers have no engine."""

from __future__ import annotations

import shutil
import signal
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.support.client import Reply, StreamResult
from tests.support.stack import Frontend, Worker
from tests.support.wait import wait_until
from tests.unit.lifecycle.deployment import Deployment, post, status, wait_state

pytestmark = pytest.mark.e2e


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def stream(
    pool: ThreadPoolExecutor, frontend: Frontend, worker: Worker, tokens: int
) -> Future[StreamResult]:
    """Start a streamed request and return once ``worker`` runs it."""
    before = worker.log().count("request received")
    running = pool.submit(frontend.client.stream_chat, "stub", "hello", max_tokens=tokens)
    wait_until(
        lambda: worker.log().count("request received") > before, f"{worker.name} has the request"
    )
    return running


def wait_routed_to(worker: Worker) -> None:
    """Requests that others send arrive at ``worker`` (again)."""
    before = worker.log().count("request received")
    wait_until(
        lambda: worker.log().count("request received") > before, f"{worker.name} gets requests"
    )


def ask(frontend: Frontend, tokens: int = 3) -> Reply:
    return frontend.client.chat("stub", "hello", max_tokens=tokens)


def test_a_drain_ends_after_the_last_request_and_resume_restores_service(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    worker = deployment.stub("worker", "--delay-ms", "20", ready=False)
    frontend = deployment.frontend()
    running = stream(pool, frontend, worker, 60)

    code, body = post(worker, "/engine/drain")
    assert code == 202
    assert body == {"worker_id": body["worker_id"], "state": "draining", "reason": "routing_grace"}
    wait_until(lambda: status(worker)["reason"] == "dynamo_inflight", "the grace is over")
    assert ask(frontend).status == 503

    result = running.result(30)
    assert result.complete and len(result.text) == 60 and result.finish_reason == "length"
    wait_state(worker, "drained")
    assert status(worker)["reason"] is None
    assert post(worker, "/engine/drain")[0] == 200

    assert post(worker, "/engine/resume") == (200, {**status(worker), "state": "serving"})
    wait_until(lambda: ask(frontend).status == 200, "the frontend routes to the worker again")


def test_a_late_request_is_offered_to_another_worker(deployment: Deployment) -> None:
    first = deployment.stub("first", ready=False)
    second = deployment.stub("second", ready=False)
    frontend = deployment.frontend(migration_limit=3)
    post(first, "/engine/close")
    replies = [ask(frontend) for _ in range(10)]
    assert {reply.status for reply in replies} == {200}
    assert "WorkerUnavailable" in first.log() or "draining and admits no new" in first.log()
    assert second.log().count("request completed") >= 10


def test_without_migration_a_late_request_gets_503(deployment: Deployment) -> None:
    worker = deployment.stub("worker", ready=False)
    frontend = deployment.frontend(migration_limit=0)
    post(worker, "/engine/close")
    assert ask(frontend).status == 503


def test_bytes_that_a_stopped_reader_has_not_taken_keep_the_worker_from_drained(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    worker = deployment.stub("worker", "--delay-ms", "2", "--wide", "2000", ready=False)
    frontend = deployment.frontend()
    running = stream(pool, frontend, worker, 300)
    frontend.send(signal.SIGSTOP)
    try:
        post(worker, "/engine/drain")
        wait_until(
            lambda: "draining (dynamo_inflight)" in worker.log(), "the grace is over", deadline_s=5
        )
        wait_until(
            lambda: status(worker)["state"] == "drained" or _generated(worker, 1),
            "the handler has generated everything",
        )
        assert status(worker) == {**status(worker), "state": "draining"}
        assert status(worker)["reason"] == "dynamo_inflight"
    finally:
        frontend.send(signal.SIGCONT)
    result = running.result(60)
    assert result.complete and len(result.text) == 300 * 2000
    wait_state(worker, "drained")


def _generated(worker: Worker, count: int) -> bool:
    """The handler's generator is exhausted ``count`` times, whatever the client has read."""
    return worker.log().count("generated everything") >= count


def test_a_pause_holds_requests_and_continue_serves_them(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    worker = deployment.stub("worker", "--delay-ms", "10", ready=False)
    frontend = deployment.frontend()
    running = stream(pool, frontend, worker, 40)
    assert post(worker, "/engine/pause")[0] == 200
    assert status(worker)["state"] == "paused"
    assert post(worker, "/engine/drain")[0] == 409
    assert post(worker, "/engine/resume")[0] == 409
    assert not running.done()
    assert post(worker, "/engine/continue")[0] == 200
    assert running.result(30).complete
    wait_until(lambda: ask(frontend).status == 200, "the worker is registered again")


def test_continue_never_puts_a_drained_worker_back_into_discovery(deployment: Deployment) -> None:
    worker = deployment.stub("worker", ready=False)
    frontend = deployment.frontend()
    post(worker, "/engine/drain")
    wait_state(worker, "drained")
    assert post(worker, "/engine/pause")[0] == 409
    assert post(worker, "/engine/continue")[0] == 200
    assert status(worker)["state"] == "drained"
    assert instances(deployment) == []
    assert ask(frontend).status == 503


def test_lora_aliases_leave_and_return_with_the_worker(deployment: Deployment) -> None:
    worker = deployment.stub("worker", ready=False)
    frontend = deployment.frontend()
    frontend.wait_for_model("alias")

    def codes(*names: str) -> list[int]:
        return [frontend.client.chat(name, "hello", max_tokens=2).status for name in names]

    assert codes("stub", "alias") == [200, 200]
    post(worker, "/engine/drain")
    wait_state(worker, "drained")
    assert post(worker, "/engine/alias")[0] == 200
    assert instances(deployment) == []
    assert codes("stub", "alias") == [503, 503]
    assert codes("late-alias")[0] in (404, 503)
    post(worker, "/engine/resume")
    wait_until(
        lambda: codes("stub", "alias", "late-alias") == [200, 200, 200],
        "the frontend routes every name to the worker again",
    )


def instances(deployment: Deployment) -> list[str]:
    """The `generate` entries of the discovery folder."""
    folder = deployment.kv_folder / "v1" / "instances"
    return [path.name for path in folder.iterdir() if "generate" in path.name]


def test_a_withdrawal_that_discovery_refuses_is_pending_until_a_retry_confirms(
    deployment: Deployment,
) -> None:
    worker = deployment.stub("worker")
    away = deployment.kv_folder.with_name("away")
    deployment.kv_folder.rename(away)
    deployment.kv_folder.write_text("no folder")
    for _ in range(2):
        code, body = post(worker, "/engine/drain")
        assert code == 503
        assert body["state"] == "draining" and body["reason"] == "discovery_unregister_pending"
        assert body["error"]
    deployment.kv_folder.unlink()
    shutil.move(away, deployment.kv_folder)
    assert post(worker, "/engine/drain")[0] == 202
    wait_state(worker, "drained")


def test_repeated_cycles_with_a_short_grace_lose_no_request(
    deployment: Deployment, pool: ThreadPoolExecutor
) -> None:
    workers = [
        deployment.stub(name, "--delay-ms", "1", grace_s=0.05, ready=False)
        for name in ("one", "two")
    ]
    frontend = deployment.frontend(migration_limit=3)
    stop = [False]

    def load(seed: int) -> list[Reply]:
        replies = []
        while not stop[0]:
            replies.append(ask(frontend, tokens=1 + (seed + len(replies)) % 8))
        return replies

    loads = [pool.submit(load, seed) for seed in range(4)]
    for cycle in range(10):
        worker = workers[cycle % 2]
        assert post(worker, "/engine/drain")[0] in (200, 202)
        wait_state(worker, "drained")
        assert post(worker, "/engine/resume")[0] == 200
        # Discovery knows it; a starved frontend may hear of it later than the short grace of the
        # other worker's drain, and then has nobody left.
        wait_routed_to(worker)
    stop[0] = True
    replies = [reply for running in loads for reply in running.result(30)]
    assert len(replies) > 50
    assert {reply.status for reply in replies} == {200}
    assert all(reply.json()["choices"][0]["finish_reason"] == "length" for reply in replies)
