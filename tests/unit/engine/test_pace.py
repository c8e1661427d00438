"""When streams have to wait for each other, and for how long."""

from __future__ import annotations

import asyncio
import logging

import pytest
from sglang_worker.engine import pace as module
from sglang_worker.engine.pace import (
    HOLD_MESSAGES,
    HOLD_S,
    PATIENCE_S,
    TELL_AFTER_S,
    TELL_AGAIN_S,
    Backlog,
    Pace,
)


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
            pace.begin(True)
            clock.now_s += TELL_AFTER_S
        assert len(caplog.records) == 1
        assert "--gateway-workers" in caplog.text
        clock.now_s += TELL_AGAIN_S
        pace.begin(True)
    assert len(caplog.records) == 2


class Streams:
    """Streams that wait, and who of them goes on in which order."""

    def __init__(self, pace: Pace, names: str) -> None:
        self.went_on: list[str] = []
        self.tasks = {name: asyncio.create_task(self._wait(pace, name)) for name in names}

    async def _wait(self, pace: Pace, name: str) -> None:
        await pace.turn()
        self.went_on.append(name)

    @classmethod
    async def waiting(cls, pace: Pace, names: str = "abc") -> Streams:
        streams = cls(pace, names)
        await asyncio.sleep(0)
        return streams

    async def now(self) -> str:
        """Who has gone on, after everything that is due has run."""
        for _ in range(3):
            await asyncio.sleep(0)
        return "".join(self.went_on)


def behind(pace: Pace, clock: Clock) -> None:
    pace.begin(True)
    clock.now_s += 2 * PATIENCE_S
    pace.begin(True)
    assert pace.behind


async def test_streams_go_on_together_when_the_last_message_was_handled() -> None:
    clock = Clock()
    pace = Pace(clock)
    behind(pace, clock)
    streams = await Streams.waiting(pace)
    pace.end()
    assert await streams.now() == ""
    pace.begin(False)
    assert await streams.now() == "", "what this message brings is still to come"
    pace.end()
    assert await streams.now() == "abc"


async def test_a_backlog_that_does_not_end_lets_streams_go_on_after_some_time_and_messages() -> (
    None
):
    clock = Clock()
    pace = Pace(clock)
    behind(pace, clock)
    streams = await Streams.waiting(pace)
    for _ in range(HOLD_MESSAGES + 2):
        pace.end()
    assert await streams.now() == "", "the time is not over"
    clock.now_s += 2 * HOLD_S
    pace.end()
    assert await streams.now() == "abc"


async def test_a_slow_turn_of_all_streams_does_not_end_the_next_wait_after_one_message() -> None:
    clock = Clock()
    pace = Pace(clock)
    behind(pace, clock)
    streams = await Streams.waiting(pace)
    for handled in range(1, HOLD_MESSAGES + 1):
        clock.now_s += 2 * HOLD_S
        assert await streams.now() == "", f"after {handled - 1} messages"
        pace.end()
    assert await streams.now() == "abc"


async def test_no_stream_waits_for_ever_when_no_message_comes() -> None:
    pace = Pace()
    async with asyncio.timeout(30):
        await asyncio.gather(*(pace.turn() for _ in range(3)))
        await pace.turn()


async def test_a_stream_that_is_cancelled_while_it_waits_takes_no_other_along() -> None:
    pace = Pace()
    streams = await Streams.waiting(pace, "ab")
    streams.tasks["a"].cancel()
    assert await streams.now() == ""
    pace.begin(False)
    pace.end()
    assert await streams.now() == "b"
    assert streams.tasks["a"].cancelled()
