"""Readers that stall, behind the real frontend and runtime: only their own stream waits."""

from __future__ import annotations

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


@pytest.fixture(scope="module")
def deployment(tiny_model: Path) -> Iterator[tuple[Frontend, Worker]]:
    with Stack() as stack:
        frontend = stack.start_frontend(migration_limit=1)
        worker = stack.start_worker(
            "--model-path",
            str(tiny_model),
            module="tests.support.pushing_worker",
            environ={"PYTHONPATH": with_repository_on_path(stack.environ())["PYTHONPATH"]},
        )
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
        lambda: worker.log()[before:].rstrip().endswith("stalled 0"),
        "the threads with the three streams have ended",
        deadline_s=60.0,
    )
    quick = frontend.client.stream_chat(MODEL, "hello", max_tokens=20)
    assert (len(quick.text), quick.complete) == (20, True)


def test_a_worker_with_a_stalled_reader_stops_on_sigterm_once_the_reader_is_gone(
    stack: Stack, tiny_model: Path
) -> None:
    frontend = stack.start_frontend()
    worker = stack.start_worker(
        "--model-path",
        str(tiny_model),
        module="tests.support.pushing_worker",
        environ={"PYTHONPATH": with_repository_on_path(stack.environ())["PYTHONPATH"]},
    )
    frontend.wait_for_model(MODEL)
    slow = unread(frontend)
    worker.wait_log(r"stalled 1$")
    slow.close()
    assert worker.stop() == 0
