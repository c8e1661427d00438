"""The test harness against the real frontend and the real runtime, without an engine."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ProcessEnded
from tests.support.stack import Frontend, Stack, Worker, wait_port_closed

pytestmark = pytest.mark.e2e
MODEL = "stub"


@pytest.fixture(scope="module")
def deployment(tiny_model: Path) -> Iterator[tuple[Frontend, Worker]]:
    with Stack() as stack:
        frontend = stack.start_frontend(migration_limit=1, ready=False)
        worker = stack.start_stub(tiny_model, "--delay-ms", "20")
        frontend.wait_for_model(MODEL)
        yield frontend, worker


def test_a_whole_answer_has_text_finish_reason_and_usage(
    deployment: tuple[Frontend, Worker],
) -> None:
    frontend, _ = deployment
    reply = frontend.client.chat(MODEL, "hello", max_tokens=4)
    assert reply.status == 200
    choice = reply.json()["choices"][0]
    assert choice["message"]["content"] == "abcd"
    assert choice["finish_reason"] == "length"
    assert reply.json()["usage"]["completion_tokens"] == 4


def test_a_streamed_answer_is_put_together(deployment: tuple[Frontend, Worker]) -> None:
    frontend, _ = deployment
    result = frontend.client.stream_chat(MODEL, "hello", max_tokens=6)
    assert (result.text, result.finish_reason, result.complete) == ("abcdef", "length", True)
    assert result.errors == []


def test_hanging_up_at_a_token_reaches_the_worker(deployment: tuple[Frontend, Worker]) -> None:
    frontend, worker = deployment
    result = frontend.client.stream_chat(MODEL, "hello", disconnect_after=3, max_tokens=500)
    assert len(result.text) == 3
    assert not result.complete
    worker.wait_log(r"stub cancelled after \d+", deadline_s=15.0)


def test_an_error_before_the_first_token_has_its_status(stack: Stack, tiny_model: Path) -> None:
    frontend = stack.start_frontend(ready=False)
    stack.start_stub(tiny_model, "--fail", "InvalidArgument")
    frontend.wait_for_model(MODEL)
    reply = frontend.client.chat(MODEL, "hello", max_tokens=4)
    assert reply.status == 400
    assert "stub failed at token 0" in reply.text


def test_a_killed_worker_leaves_nothing_behind(stack: Stack, tiny_model: Path) -> None:
    worker = stack.start_stub(tiny_model)
    assert worker.system is not None
    assert worker.system.get("/live").status == 200
    worker.send(signal.SIGKILL)
    assert worker.wait_exit() == -signal.SIGKILL
    worker.check_nothing_left()
    wait_port_closed(worker.system_port or 0)


def test_a_worker_stops_on_sigterm_with_exit_code_0(stack: Stack, tiny_model: Path) -> None:
    worker = stack.start_stub(tiny_model)
    assert worker.stop() == 0


def test_waiting_for_a_model_ends_when_its_worker_has_ended(stack: Stack) -> None:
    frontend = stack.start_frontend()
    stack.start_worker(module="no.such.module")
    with pytest.raises(ProcessEnded, match="worker-2 ended early"):
        frontend.wait_for_model(MODEL, deadline_s=60)
