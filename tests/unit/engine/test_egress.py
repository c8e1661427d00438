"""Handing chunks to sinks that block, break or refuse, as the runtime's may."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sglang_worker.engine.egress import WINDOW_CHUNKS, Crew, Egress, SendingBroke
from sglang_worker.engine.egress_stalls import MANY, TELL_EVERY_S, StallCounts

from tests.support.wait import wait_until_async

GONE = "response stream is closed; the consumer dropped the response stream"


class Reader:
    """A sink. ``block`` makes the next `send` wait until ``read``."""

    def __init__(self) -> None:
        self.got: list[Any] = []
        self.closed = False
        self.threads: set[int] = set()
        self.failure: BaseException | None = None
        self._open = threading.Event()
        self._open.set()
        self.waiting = threading.Event()

    def block(self) -> None:
        self._open.clear()

    def read(self) -> None:
        self._open.set()

    def send(self, chunk: Any) -> None:
        if not self._open.is_set():
            self.waiting.set()
            assert self._open.wait(30), "nobody ever read"
        if self.failure is not None:
            raise self.failure
        self.threads.add(threading.get_ident())
        self.got.append(chunk)

    def close(self) -> None:
        self.closed = True


class Answer:
    """A handler's answer of ``count`` chunks; counts what was made, and knows how it ended."""

    def __init__(self, count: int, failure: Exception | None = None) -> None:
        self.made = 0
        self.ended = asyncio.Event()
        self.dropped = False
        self._count = count
        self._failure = failure

    async def chunks(self) -> AsyncIterator[int]:
        try:
            for number in range(self._count):
                self.made += 1
                yield number
                await asyncio.sleep(0)
            if self._failure is not None:
                raise self._failure
        except GeneratorExit:
            self.dropped = True
            raise
        finally:
            self.ended.set()


async def advance(pushed: AsyncIterator[Any]) -> None:
    """What the runtime does with a pushing handler: one step, which must end it."""
    with pytest.raises(StopAsyncIteration):
        await anext(pushed)


async def test_chunks_arrive_in_order_off_the_loop_and_then_the_stream_is_closed() -> None:
    reader, answer = Reader(), Answer(1000)
    await advance(Egress().push(answer.chunks(), reader))
    assert reader.got == list(range(1000))
    assert reader.closed
    assert threading.get_ident() not in reader.threads


async def test_an_empty_answer_is_closed_too() -> None:
    reader = Reader()
    await advance(Egress().push(Answer(0).chunks(), reader))
    assert reader.closed
    assert reader.got == []


async def test_what_the_handler_raises_follows_its_chunks_and_leaves_the_stream_open() -> None:
    reader, failure = Reader(), LookupError("the engine died")
    pushed = Egress().push(Answer(100, failure).chunks(), reader)
    with pytest.raises(LookupError) as raised:
        await anext(pushed)
    assert raised.value is failure
    assert reader.got == list(range(100))
    # The runtime ends it with the error's own kind; a close would make it look whole.
    assert not reader.closed


async def test_a_reader_that_stalls_holds_up_its_own_stream_alone() -> None:
    egress = Egress()
    slow, quick = Reader(), Reader()
    slow.block()
    held = Answer(10 * WINDOW_CHUNKS)
    stuck = asyncio.create_task(advance(egress.push(held.chunks(), slow)))
    await wait_until_async(slow.waiting.is_set, "the slow stream's thread is blocked")
    await asyncio.wait_for(advance(egress.push(Answer(500).chunks(), quick)), 20)
    assert quick.got == list(range(500))
    assert quick.closed
    assert not stuck.done()
    slow.read()
    await asyncio.wait_for(stuck, 20)
    assert slow.got == list(range(10 * WINDOW_CHUNKS))
    assert slow.closed


async def test_the_handler_is_held_back_while_its_reader_stalls() -> None:
    slow, answer = Reader(), Answer(10 * WINDOW_CHUNKS)
    slow.block()
    egress = Egress()
    stuck = asyncio.create_task(advance(egress.push(answer.chunks(), slow)))
    await wait_until_async(lambda: answer.made > WINDOW_CHUNKS, "the window is full")
    # Others pass through the same loop and queue, so it had every chance to go on.
    await asyncio.wait_for(advance(egress.push(Answer(500).chunks(), Reader())), 20)
    assert answer.made == WINDOW_CHUNKS + 1
    slow.read()
    await asyncio.wait_for(stuck, 20)
    assert answer.made == 10 * WINDOW_CHUNKS


async def test_many_stalled_readers_are_left_behind_one_by_one_and_all_catch_up() -> None:
    egress = Egress(crew := Crew(counts=(counts := StallCounts())))
    slow = [Reader() for _ in range(12)]
    for reader in slow:
        reader.block()
    answers = [egress.push(Answer(3 * WINDOW_CHUNKS).chunks(), reader) for reader in slow]
    stuck = [asyncio.create_task(advance(answer)) for answer in answers]
    quick = Reader()
    await asyncio.wait_for(advance(egress.push(Answer(50).chunks(), quick)), 20)
    await wait_until_async(lambda: crew.stalled == len(slow), "each has a thread of its own")
    await wait_until_async(lambda: counts.streams == len(slow), "each is counted")
    for reader in slow:
        reader.read()
    await asyncio.wait_for(asyncio.gather(*stuck), 20)
    assert [reader.got for reader in slow] == [list(range(3 * WINDOW_CHUNKS))] * len(slow)
    await wait_until_async(lambda: counts.streams == 0, "the threads of their own have ended")


def test_the_log_warns_of_many_stalled_readers_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    counts = StallCounts(lambda: now_s)
    for _ in range(MANY + 5):
        counts.began()
    assert [record.args for record in caplog.records] == [(MANY,)]
    now_s = TELL_EVERY_S
    counts.began()
    assert [record.args for record in caplog.records][1:] == [(MANY + 6,)]
    for _ in range(MANY + 6):
        counts.ended()
    assert counts.streams == 0


async def test_a_reader_that_is_gone_ends_the_handler_as_if_it_had_been_dropped() -> None:
    reader, answer = Reader(), Answer(10**9)
    reader.failure = RuntimeError(GONE)
    await asyncio.wait_for(advance(Egress().push(answer.chunks(), reader)), 20)
    assert answer.dropped
    assert not reader.closed


async def test_a_stalled_reader_that_goes_away_frees_its_handler_and_its_thread() -> None:
    egress = Egress(crew := Crew())
    reader, answer = Reader(), Answer(10**9)
    reader.block()
    stuck = asyncio.create_task(advance(egress.push(answer.chunks(), reader)))
    await wait_until_async(lambda: crew.stalled == 1, "the stream has a thread of its own")
    reader.failure = RuntimeError(GONE)
    reader.read()
    await asyncio.wait_for(stuck, 20)
    assert answer.dropped
    await wait_until_async(lambda: crew.stalled == 0, "its thread has ended")


async def test_a_chunk_that_cannot_be_sent_is_an_error_not_a_silent_end() -> None:
    reader = Reader()
    reader.failure = TypeError("cannot be encoded")
    with pytest.raises(TypeError, match="cannot be encoded"):
        await anext(Egress().push(Answer(10**9).chunks(), reader))
    assert not reader.closed


class Panic(BaseException):
    """As PyO3's PanicException, which is no Exception."""


async def test_a_panic_of_the_runtime_ends_its_stream_with_an_error_and_no_other() -> None:
    egress, reader, quick = Egress(), Reader(), Reader()
    reader.failure = Panic("index out of bounds")
    broken = egress.push(Answer(10 * WINDOW_CHUNKS).chunks(), reader)
    with pytest.raises(SendingBroke, match="index out of bounds"):
        await asyncio.wait_for(anext(broken), 20)
    await asyncio.wait_for(advance(egress.push(Answer(500).chunks(), quick)), 20)
    assert quick.got == list(range(500))


async def test_no_thread_is_started_for_work_that_never_comes() -> None:
    before = threading.active_count()
    Egress()
    assert threading.active_count() == before


def test_a_thread_that_is_merely_between_chunks_is_not_relieved() -> None:
    now_s = 0.0
    crew = Crew(clock=lambda: now_s)
    crew.start()
    now_s = 1000.0
    assert not crew.relieve()


@pytest.mark.parametrize("pause_s", [0.001, 0.01])
async def test_being_relieved_again_and_again_loses_and_reorders_nothing(pause_s: float) -> None:
    """Every send outlasts the limit, so that each hand-over meets chunks on their way."""

    class Dawdler(Reader):
        def send(self, chunk: Any) -> None:
            time.sleep(0.0005)
            super().send(chunk)

    crew = Crew(clock=iter(range(10**9)).__next__)
    egress = Egress(crew)
    readers = [Dawdler() for _ in range(5)]
    pushes = [advance(egress.push(Answer(300).chunks(), reader)) for reader in readers]
    done = asyncio.gather(*pushes)
    handovers = 0
    while not done.done():
        handovers += crew.relieve()
        await asyncio.sleep(pause_s)
    await done
    assert [reader.got for reader in readers] == [list(range(300))] * 5
    await wait_until_async(lambda: crew.stalled == 0, "every stream was given back")
    assert handovers >= 10


async def test_without_another_thread_everybody_waits_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    egress = Egress(crew := Crew())
    slow, other = Reader(), Reader()
    slow.block()
    crew.start()

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    waiting = asyncio.gather(
        *(advance(egress.push(Answer(100).chunks(), reader)) for reader in (slow, other))
    )
    await wait_until_async(lambda: "can't start new thread" in caplog.text, "it is said")
    assert crew.stalled == 0
    slow.read()
    await asyncio.wait_for(waiting, 20)
    assert slow.got == other.got == list(range(100))
    assert caplog.text.count("can't start new thread") == 1
