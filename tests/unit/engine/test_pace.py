"""When streams have to wait for each other, and for how long."""

from __future__ import annotations

import asyncio
import logging

import pytest
from sglang_worker.engine import pace as module
from sglang_worker.engine.pace import PATIENCE_S, TELL_AFTER_S, TELL_AGAIN_S, Backlog, Pace


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_process_that_keeps_up_is_never_behind() -> None:
    backlog = Backlog()
    for step in range(1000):
        backlog.look(False, step * 0.001)
    assert not backlog.behind
    assert backlog.behind_s == 0


def test_a_burst_shorter_than_the_patience_holds_nobody() -> None:
    backlog = Backlog()
    for rank in range(8):
        backlog.look(True, rank * PATIENCE_S / 10)
        assert not backlog.behind, f"message {rank} of a burst"
    backlog.look(False, PATIENCE_S)
    backlog.look(True, 10.0)
    assert not backlog.behind, "an earlier burst must not count"


def test_messages_that_keep_queueing_are_a_backlog_until_none_waits() -> None:
    backlog = Backlog()
    backlog.look(True, 1.0)
    backlog.look(True, 1.0 + 2 * PATIENCE_S)
    assert backlog.behind
    backlog.look(False, 3.0)
    assert not backlog.behind
    assert backlog.behind_s == pytest.approx(2.0)


def test_a_lasting_backlog_is_told_once_and_again_much_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    pace = Pace(clock)
    with caplog.at_level(logging.WARNING, logger=module.__name__):
        for _ in range(3):
            pace.look(True)
            clock.now_s += TELL_AFTER_S
        assert len(caplog.records) == 1
        assert "--gateway-workers" in caplog.text
        clock.now_s += TELL_AGAIN_S
        pace.look(True)
    assert len(caplog.records) == 2


async def test_streams_wait_while_behind_and_go_on_together_when_it_is_over() -> None:
    pace = Pace()
    order: list[str] = []

    async def stream(name: str) -> None:
        await pace.turn()
        order.append(name)

    tasks = [asyncio.create_task(stream(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert order == []
    pace.let_go()
    await asyncio.gather(*tasks)
    assert order == ["a", "b", "c"]


async def test_no_stream_waits_for_ever_when_no_message_comes() -> None:
    pace = Pace()
    async with asyncio.timeout(30):
        await asyncio.gather(*(pace.turn() for _ in range(3)))
        await pace.turn()


async def test_a_stream_that_is_cancelled_while_it_waits_takes_no_other_along() -> None:
    pace = Pace()
    gone, left = (asyncio.create_task(pace.turn()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.sleep(0)
    assert not left.done()
    pace.let_go()
    await left
    assert gone.cancelled()
