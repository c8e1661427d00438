"""Readers that stall, behind the real frontend and runtime: only their own stream waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client import Stream, collect
from tests.support.environment import with_repository_on_path
from tests.support.stack import Frontend, Stack, Worker

pytestmark = pytest.mark.e2e
MODEL = "stub"
# More than the sockets between worker, frontend and client hold.
MANY = 120_000


def start(stack: Stack, model: Path, *arguments: str) -> Worker:
    worker = stack.start_worker(
        "--model-path",
        str(model),
        *arguments,
        module="tests.support.pushing_worker",
        environ={"PYTHONPATH": with_repository_on_path(stack.environ())["PYTHONPATH"]},
    )
    worker.wait_log(r"^stub ready ", deadline_s=60.0)
    return worker


@pytest.fixture(scope="module")
def deployment(tiny_model: Path) -> Iterator[tuple[Frontend, Worker]]:
    with Stack() as stack:
        frontend = stack.start_frontend(migration_limit=1, ready=False)
        worker = start(stack, tiny_model)
        frontend.wait_for_model(MODEL)
        yield frontend, worker


def unread(frontend: Frontend) -> Stream:
    return frontend.client.open_chat(MODEL, "hello", max_tokens=MANY)


def test_a_reader_that_stalls_holds_up_nobody_else_and_still_gets_every_token(
    deployment: tuple[Frontend, Worker],
) -> None:
    frontend, worker = deployment
    slow = unread(frontend)
    worker.wait_log(r"stalled 1$")
    quick = frontend.client.stream_chat(MODEL, "hello", max_tokens=300)
    assert (len(quick.text), quick.finish_reason, quick.errors) == (300, "length", [])
    late = collect(slow)
    assert (len(late.text), late.finish_reason, late.errors) == (MANY, "length", [])
    worker.wait_log(r"stalled 0$")


def test_hanging_up_on_a_stalled_stream_ends_it(deployment: tuple[Frontend, Worker]) -> None:
    frontend, worker = deployment
    before = len(worker.log())
    streams = [unread(frontend) for _ in range(3)]
    worker.wait_for(
        lambda: "stalled 3" in worker.log()[before:], "all three stall", deadline_s=60.0
    )
    for stream in streams:
        stream.close()
    worker.wait_for(
        lambda: re.findall(r"^stalled (\d+)$", worker.log()[before:], re.MULTILINE)[-1] == "0",
        "the threads with the three streams have ended",
        deadline_s=60.0,
    )
    quick = frontend.client.stream_chat(MODEL, "hello", max_tokens=20)
    assert (len(quick.text), quick.complete) == (20, True)


def test_a_worker_with_a_stalled_reader_stops_on_sigterm_once_the_reader_is_gone(
    stack: Stack, tiny_model: Path
) -> None:
    frontend = stack.start_frontend(ready=False)
    worker = start(stack, tiny_model)
    frontend.wait_for_model(MODEL)
    slow = unread(frontend)
    worker.wait_log(r"stalled 1$")
    slow.close()
    assert worker.stop() == 0


@pytest.mark.parametrize(("error", "tokens"), [("WorkerUnavailable", 0), ("EngineShutdown", 4)])
def test_an_error_after_pushed_tokens_moves_the_request_to_another_worker(
    stack: Stack, tiny_model: Path, error: str, tokens: int
) -> None:
    frontend = stack.start_frontend(migration_limit=3, ready=False)
    failing = start(stack, tiny_model, "--fail", error, "--fail-after", str(tokens))
    start(stack, tiny_model)
    frontend.wait_for_model(MODEL)
    for _ in range(6):
        result = frontend.client.stream_chat(MODEL, "hello", max_tokens=9)
        assert (len(result.text), result.finish_reason, result.errors) == (9, "length", [])
    failing.wait_log(f"stub failed at token {tokens}")


def test_a_refusal_has_its_status_and_message(stack: Stack, tiny_model: Path) -> None:
    frontend = stack.start_frontend(ready=False)
    start(stack, tiny_model, "--fail", "InvalidArgument")
    frontend.wait_for_model(MODEL)
    reply = frontend.client.chat(MODEL, "hello", max_tokens=4)
    assert (reply.status, "stub failed at token 0" in reply.text) == (400, True)
