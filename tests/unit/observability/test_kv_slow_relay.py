"""SGLang's own publisher, a worker process that stands still: what is dropped is counted."""

from __future__ import annotations

import importlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sglang_worker.observability.kv_events.counters import EventKind, StreamCounters

from tests.support.environment import with_repository_on_path
from tests.support.exposition import Scrape
from tests.support.ports import free_port
from tests.support.stack import Stack, Worker
from tests.support.wait import wait_until
from tests.unit.observability.kv_relay_host import BLOCK_TOKENS

KEPT = 500
"""Batches that SGLang's publisher keeps for one subscriber here; 100,000 by default."""
FLOOD = 10 * KEPT
# So large that the kernel's socket buffers do not hold the flood.
BLOCKS_PER_BATCH = 250


class Engine:
    """What a scheduler has: SGLang's publisher, with a short queue. A reader that is never slow
    tells when it has sent something."""

    def __init__(self) -> None:
        self._sglang: Any = importlib.import_module("sglang.srt.disaggregation.kv_events")
        zmq: Any = importlib.import_module("zmq")
        port = free_port()
        self.endpoint = f"tcp://127.0.0.1:{port}"
        self._publisher = self._sglang.ZmqEventPublisher(0, f"tcp://*:{port}", hwm=KEPT)
        self._reader = zmq.Context.instance().socket(zmq.SUB)
        self._reader.setsockopt(zmq.RCVHWM, 0)
        self._reader.subscribe(b"")
        self._reader.connect(self.endpoint)
        self.published = 0

    def publish(self, batches: int) -> None:
        """Batches of one event each; returns when the last has left. Less than the queue at once,
        for the reader must not lose any."""
        for _ in range(batches):
            first = self.published * BLOCKS_PER_BATCH
            hashes = list(range(first, first + BLOCKS_PER_BATCH))
            tokens = [self.published] * BLOCK_TOKENS * BLOCKS_PER_BATCH
            event = self._sglang.BlockStored(hashes, None, tokens, BLOCK_TOKENS, None, "GPU")
            self._publisher.publish(self._sglang.KVEventBatch(time.time(), [event]))
            self.published += 1
            if self.published % (KEPT // 5) == 0:
                self._wait_sent()
        self._wait_sent()

    def _wait_sent(self) -> None:
        last = -1
        while last < self.published - 1:
            assert self._reader.poll(10_000), f"batch {last} was the last"
            last = int.from_bytes(self._reader.recv_multipart()[1], "big")

    def close(self) -> None:
        self._publisher.shutdown()
        self._reader.close(linger=0)


@pytest.fixture
def engine() -> Iterator[Engine]:
    publisher = Engine()
    yield publisher
    publisher.close()


def test_what_sglang_drops_for_a_worker_that_stands_still_is_counted_and_logged(
    stack: Stack, tmp_path: Path, engine: Engine
) -> None:
    file = tmp_path / "counters.json"
    host = stack.start_worker(
        *(engine.endpoint, str(file)),
        module="tests.unit.observability.kv_relay_host",
        name="relay",
        environ={"PYTHONPATH": with_repository_on_path(stack.environ())["PYTHONPATH"]},
    )
    wait_until(lambda: both_listen(engine, host, file), "both have subscribed", ignore=(OSError,))

    host.send(signal.SIGSTOP)
    try:
        engine.publish(FLOOD)
    finally:
        host.send(signal.SIGCONT)
    flooded = engine.published

    def all_counted() -> bool:
        # The gap shows at the first batch that finds room again.
        engine.publish(1)
        seen = counters(file)
        return seen.batches + seen.skipped + seen.missed_at_start > flooded

    wait_until(all_counted, "each batch was read or is counted as missing")
    seen = counters(file)
    assert FLOOD - seen.skipped >= KEPT, "what the queue took came after all"
    assert seen.lost > 0
    assert "batches of KV events are missing" in host.log()
    # The relay has a queue of its own, and its loss shows between its counter and the watcher's.
    wait_until(lambda: received(host) >= KEPT, "the relay goes on")
    assert received(host) < seen.events[EventKind.STORED] + seen.skipped


def both_listen(engine: Engine, host: Worker, file: Path) -> bool:
    engine.publish(1)
    return bool(counters(file).batches and received(host))


def counters(file: Path) -> StreamCounters:
    return msgspec.json.decode(file.read_bytes(), type=dict[int, StreamCounters])[0]


def received(host: Worker) -> float:
    assert host.system is not None
    scrape = Scrape(host.system.get("/metrics").text)
    return sum(scrape.values("dynamo_component_kv_publisher_zmq_events_total", stage="received"))
