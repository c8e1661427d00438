"""The relay on Dynamo's real runtime: what it passes on, and what only the watcher counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sglang_worker.observability.kv_events.counters import EventKind, Fault, StreamCounters

from tests.support.environment import with_repository_on_path
from tests.support.stack import Stack, Worker
from tests.support.wait import wait_until
from tests.unit.observability.kv_publisher import Publisher, stored

RELAYED = "dynamo_component_kv_publisher_zmq_events_total{"


class Relay(Publisher):
    """The host process with a publisher of our own in the place of SGLang's."""

    def __init__(self, stack: Stack, folder: Path) -> None:
        super().__init__()
        self._file = folder / "counters.json"
        environ = with_repository_on_path(stack.environ())
        self.host: Worker = stack.start_worker(
            *(self.endpoint, str(self._file)),
            module="tests.unit.observability.kv_relay_host",
            name="relay",
            environ={"PYTHONPATH": environ["PYTHONPATH"]},
        )
        self.wait_for_subscribers()

    @property
    def counters(self) -> StreamCounters:
        found = msgspec.json.decode(self._file.read_bytes(), type=dict[int, StreamCounters])
        return found[0]

    @property
    def relayed(self) -> float:
        assert self.host.system is not None
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in self.host.system.get("/metrics").text.splitlines()
            if line.startswith(RELAYED) and 'stage="accepted"' in line
        )


@pytest.fixture
def relay(stack: Stack, tmp_path: Path) -> Iterator[Relay]:
    running = Relay(stack, tmp_path)
    yield running
    running.close()


def test_lost_late_unreadable_and_restarted_streams_are_counted_and_relayed_on(
    relay: Relay,
) -> None:
    relay.send(0, stored(1))
    relay.send(3, stored(2, 1))
    relay.send(4, raw=b"\xff\xff")
    relay.send(5, {"type": "BlockRemoved", "block_hashes": [2], "medium": "GPU"})
    wait_until(lambda: relay.relayed == 3, "the runtime goes on after every fault")
    wait_until(lambda: relay.counters.batches == 3, "the watcher goes on as well")
    seen = relay.counters
    assert (seen.skipped, seen.lost, seen.missed_at_start) == (2, 2, 0)
    assert seen.malformed[Fault.PAYLOAD] == 1
    assert seen.events[EventKind.STORED] == 2

    relay.bind()
    relay.wait_for_subscribers()
    relay.send(0, {"type": "AllBlocksCleared"})
    wait_until(lambda: relay.relayed == 4, "the relay has reconnected by itself")
    wait_until(lambda: relay.counters.restarts == 1, "the restart is counted")
    assert relay.counters.lost == 2
    assert relay.host.running


def test_the_runtime_alone_keeps_silent_about_a_gap(relay: Relay) -> None:
    """Why there is a watcher: when this fails, the runtime has learnt to count."""
    assert relay.host.system is not None
    relay.send(0, stored(1))
    relay.send(9, stored(2, 1))
    wait_until(lambda: relay.relayed == 2, "both are relayed")
    wait_until(lambda: relay.counters.skipped == 8, "the watcher counts the gap")
    dropped = [
        line
        for line in relay.host.system.get("/metrics").text.splitlines()
        if line.startswith("dynamo_component_kv_publisher_engines_dropped_events_total{")
    ]
    assert [float(line.rsplit(" ", 1)[1]) for line in dropped] == [0.0]
