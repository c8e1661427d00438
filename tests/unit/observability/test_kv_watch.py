"""Lost, late, repeated and unreadable batches are counted, and nothing breaks the watch."""

from __future__ import annotations

import asyncio
import importlib
import logging
import socket as sockets
from typing import Any

import msgspec
import pytest
from sglang_worker.observability.kv_events.counters import (
    EventKind,
    Fault,
    KvEventCounters,
    StreamCounters,
)
from sglang_worker.observability.kv_events.sequence import (
    REMEMBERED_GAPS,
    SequenceCheck,
    Step,
)
from sglang_worker.observability.kv_events.sources import KvSource
from sglang_worker.observability.kv_events.watcher import KvEventWatcher, StreamWatch

from tests.support.wait import wait_until_async

STORED = {"type": "BlockStored", "block_hashes": [1], "token_ids": [1] * 4, "block_size": 4}
REMOVED = {"type": "BlockRemoved", "block_hashes": [1]}
CLEARED = {"type": "AllBlocksCleared"}


def frames(number: int, *events: Any, at_s: float = 0.0, rank: int | None = 0) -> list[bytes]:
    payload = msgspec.msgpack.encode([at_s or float(number), list(events), rank])
    return [b"", number.to_bytes(8, "big"), payload]


def steps(*batches: tuple[int, float]) -> list[tuple[Step, int]]:
    check = SequenceCheck()
    verdicts = [check.observe(number, at_s) for number, at_s in batches]
    return [(verdict.step, verdict.missing) for verdict in verdicts]


def test_a_stream_in_order_has_nothing_to_tell() -> None:
    assert steps((0, 1), (1, 2), (2, 3)) == [(Step.FIRST, 0), (Step.NEXT, 0), (Step.NEXT, 0)]


def test_a_skipped_number_is_a_gap() -> None:
    assert steps((0, 1), (4, 2), (5, 3))[1:] == [(Step.GAP, 3), (Step.NEXT, 0)]


def test_numbers_before_the_first_that_is_seen_were_missed_at_the_start() -> None:
    assert steps((7, 1)) == [(Step.FIRST, 7)]


def test_an_older_batch_is_late_once_and_repeated_after_that() -> None:
    seen = steps((0, 1), (2, 3), (1, 2), (1, 2), (3, 4))
    assert seen[2:] == [(Step.LATE, 0), (Step.REPEATED, 0), (Step.NEXT, 0)]


def test_a_newer_batch_with_a_smaller_number_comes_from_a_publisher_that_began_anew() -> None:
    seen = steps((0, 1), (9, 2), (0, 3), (1, 4))
    assert seen[2:] == [(Step.RESTARTED, 0), (Step.NEXT, 0)]
    assert steps((5, 1), (2, 9))[1] == (Step.RESTARTED, 2)


def test_a_huge_gap_is_counted_whole_and_remembered_in_part() -> None:
    check = SequenceCheck()
    check.observe(0, 1)
    lost = 10 * REMEMBERED_GAPS
    assert check.observe(lost + 1, 3).missing == lost
    assert check.observe(1, 2).step is Step.REPEATED
    assert check.observe(lost, 2).step is Step.LATE


def watch(counters: StreamCounters, clock_s: list[float] | None = None) -> StreamWatch:
    now = clock_s if clock_s is not None else [0.0]
    return StreamWatch(0, counters, clock=lambda: now[0])


def test_events_are_counted_by_type() -> None:
    counters = StreamCounters()
    watch(counters).take(frames(0, STORED, STORED, REMOVED, CLEARED, {"type": "New"}))
    assert counters.batches == 1
    assert counters.events == {
        EventKind.STORED: 2,
        EventKind.REMOVED: 1,
        EventKind.CLEARED: 1,
        EventKind.UNKNOWN: 1,
    }


def test_events_of_older_releases_are_arrays() -> None:
    counters = StreamCounters()
    watch(counters).take(frames(0, ["BlockRemoved", [1]]))
    assert counters.events[EventKind.REMOVED] == 1


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        ([b"x"], Fault.FRAMES),
        ([b"", b"\x01", b"x"], Fault.NUMBER),
        ([b"", (1).to_bytes(8, "big"), b"\xff\xff"], Fault.PAYLOAD),
        ([b"", (1).to_bytes(8, "big"), msgspec.msgpack.encode({"a": 1})], Fault.PAYLOAD),
        (frames(1, 5), Fault.EVENT),
        (frames(1, {"type": 5}), Fault.EVENT),
        (frames(1, STORED, rank=3), Fault.RANK),
    ],
)
def test_what_cannot_be_read_is_counted_and_the_stream_goes_on(
    wire: list[bytes], fault: Fault
) -> None:
    counters = StreamCounters()
    stream = watch(counters)
    stream.take(frames(0, STORED))
    stream.take(wire)
    stream.take(frames(2, STORED))
    assert counters.malformed[fault] == 1
    assert sum(counters.malformed.values()) == 1
    # A batch that came with a number is not lost; one without a readable number is.
    numbered = fault not in (Fault.FRAMES, Fault.NUMBER)
    assert counters.lost == (0 if numbered else 1)


def test_a_batch_that_comes_late_is_no_longer_lost() -> None:
    counters = StreamCounters()
    stream = watch(counters)
    for wire in (frames(0), frames(2), frames(1)):
        stream.take(wire)
    assert (counters.skipped, counters.late, counters.lost) == (1, 1, 0)


def test_a_flood_of_faults_is_logged_rarely(caplog: pytest.LogCaptureFixture) -> None:
    clock_s = [0.0]
    stream = watch(StreamCounters(), clock_s)
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            stream.take([b"x"])
        clock_s[0] = 11.0
        stream.take([b"x"])
    assert len(caplog.records) == 2
    assert "49 more" in caplog.records[1].getMessage()


def test_the_samples_name_every_counter_of_every_rank() -> None:
    counters = KvEventCounters()
    assert list(counters.samples()) == []
    counters.rank(1).skipped = 4
    counters.rank(0)
    samples = list(counters.samples())
    assert {sample.labels["dp_rank"] for sample in samples} == {"0", "1"}
    skipped = [one for one in samples if one.name == "kv_events_batches_skipped"]
    assert [(one.labels, one.value) for one in skipped] == [
        ({"dp_rank": "0"}, 0),
        ({"dp_rank": "1"}, 4),
    ]
    keys = [(one.name, tuple(one.labels.items())) for one in samples]
    assert len(keys) == len(set(keys))


def free_port() -> int:
    with sockets.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def bound(publisher: Any, endpoint: str) -> bool:
    zmq: Any = importlib.import_module("zmq")
    try:
        publisher.bind(endpoint)
    except zmq.ZMQError:
        return False
    return True


def test_a_burst_and_a_restarted_publisher_are_read_to_the_last_batch() -> None:
    """More batches at once than one reading takes, then the same port bound by another socket."""
    asyncio.run(_burst_and_restart())


async def _burst_and_restart() -> None:
    counters = KvEventCounters()
    endpoint = f"tcp://127.0.0.1:{free_port()}"
    zmq: Any = importlib.import_module("zmq")
    context = zmq.Context.instance()
    watcher = KvEventWatcher([KvSource(0, endpoint, "kv", 4)], counters)
    publisher = context.socket(zmq.XPUB)
    publisher.bind(endpoint)
    watcher.start()
    stream = counters.rank(0)
    try:
        await wait_until_async(lambda: publisher.poll(0), "the watcher has subscribed")
        publisher.recv()
        for number in range(1000):
            publisher.send_multipart([b"kv", *frames(number, STORED)[1:]])
        publisher.send_multipart([b"another topic", *frames(1000, STORED)[1:]])
        await wait_until_async(lambda: stream.batches == 1000, "every batch is counted")
        assert stream.events[EventKind.STORED] == 1000

        publisher.close(linger=0)
        publisher = context.socket(zmq.XPUB)
        # libzmq gives the port back in its own thread.
        await wait_until_async(lambda: bound(publisher, endpoint), "the port is free again")
        await wait_until_async(lambda: publisher.poll(0), "the watcher has subscribed again")
        publisher.send_multipart([b"kv", *frames(0, CLEARED, at_s=5000.0)[1:]])
        await wait_until_async(lambda: stream.restarts == 1, "the restart is counted")
        assert stream.lost == 0
    finally:
        watcher.stop()
        watcher.stop()
        publisher.close(linger=0)
