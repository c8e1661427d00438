"""A router that stands still while events come: what the queues take, what drops, who notices."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.environment import with_repository_on_path
from tests.support.exposition import Scrape
from tests.support.stack import Stack, Worker
from tests.support.tiny_model import write_tiny_model
from tests.support.wait import wait_until
from tests.unit.observability.kv_publisher import Publisher, stored
from tests.unit.observability.kv_relay_host import BLOCK_TOKENS

QUEUE = 100_000
"""Messages that the runtime's publisher (1.6.1) keeps for one router."""
DROPPED = 3_000
"""Events for which the relay's index has no list any more (1,024), only its tree."""
MOST_EVENTS = 4 * QUEUE
AT_ONCE = 20
# Slower than the relay, which packs what has piled up into fewer messages.
PAUSE_S = 0.001
LAST = 10**9
"""The block that ends a flood whose length nobody knows before."""


def tokens(block: int) -> list[int]:
    return [block % 50_000 + 1, block // 50_000 + 1, *range(2, BLOCK_TOKENS)]


class Deployment:
    """Publisher -> relay -> event plane -> two routers: ``router`` is asked about ``asked`` and
    stands still, ``other`` goes on and counts the messages."""

    def __init__(self, stack: Stack, folder: Path, asked: tuple[int, ...]) -> None:
        self.publisher = Publisher()
        environ = {"PYTHONPATH": with_repository_on_path(stack.environ())["PYTHONPATH"]}
        self._file = folder / "counters.json"
        model = folder / "model"
        model.mkdir()
        write_tiny_model(model)
        self.host: Worker = stack.start_worker(
            *(self.publisher.endpoint, str(self._file), str(model)),
            module="tests.unit.observability.kv_relay_host",
            name="relay",
            environ=environ,
        )
        self.host.wait_log("^registered")
        self.publisher.wait_for_subscribers()
        self.router = self._start_router(stack, environ, asked)
        self.other = self._start_router(stack, environ, ())
        self.other.wait_log("^known")
        self.sent = 0

    def _start_router(
        self, stack: Stack, environ: dict[str, str], asked: tuple[int, ...]
    ) -> Worker:
        return stack.start_worker(
            *(str(BLOCK_TOKENS), *(",".join(map(str, tokens(block))) for block in asked)),
            module="tests.unit.observability.kv_router_host",
            name="router",
            environ=environ,
        )

    @property
    def messages(self) -> float:
        """How many the event plane has brought to a router that reads."""
        assert self.other.system is not None
        text = self.other.system.get("/metrics").text
        return Scrape(text).value("dynamo_component_router_kv_zmq_ingress_batches_total")

    def store(self, blocks: int) -> None:
        """One event each, block numbers ascending from the last."""
        for block in range(self.sent, self.sent + blocks):
            self.publisher.store(block, tokens(block))
            if block % AT_ONCE == 0:
                time.sleep(PAUSE_S)
        self.sent += blocks

    def store_last(self) -> None:
        self.publisher.send(self.sent, stored(LAST, token_ids=tokens(LAST)))
        self.sent += 1

    def wait_relayed(self) -> None:
        wait_until(lambda: self.relayed == self.sent, "the relay has passed all on", deadline_s=60)

    @property
    def relayed(self) -> float:
        name = "dynamo_component_kv_publisher_zmq_events_total"
        return sum(self._scrape().values(name, stage="accepted", event_type="stored"))

    @property
    def restores(self) -> float:
        """How often a router has asked the relay's index for what it lacks."""
        return sum(
            sample.value
            for sample in self._scrape().samples
            if sample.name == "dynamo_component_requests_total"
            and sample.labels["dynamo_endpoint"].startswith("worker_kv_query_source_")
        )

    def _scrape(self) -> Scrape:
        assert self.host.system is not None
        return Scrape(self.host.system.get("/metrics").text)

    def watched(self) -> tuple[int, int]:
        """Batches that the watcher read, and those that it missed."""
        rank = msgspec.json.decode(self._file.read_bytes())["0"]
        return rank["batches"], rank["skipped"]

    def wait_known(self, *blocks: int) -> None:
        line = " ".join(("known", *map(str, blocks)))
        wait_until(
            lambda: self.router.log().rstrip().endswith(line),
            f"the router says {line}",
            deadline_s=60,
        )


@pytest.fixture
def deployed(stack: Stack, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployment]:
    deployment = Deployment(stack, tmp_path, request.param)
    yield deployment
    deployment.router.send(signal.SIGCONT)
    deployment.publisher.close()


SOME = 500


@pytest.mark.parametrize("deployed", [(0, 1, SOME - 1)], indirect=True)
def test_what_comes_while_a_router_stands_still_waits_for_it(deployed: Deployment) -> None:
    deployed.store(1)
    deployed.wait_known(1, 0, 0)
    before = deployed.restores
    deployed.router.send(signal.SIGSTOP)
    deployed.store(SOME - 1)
    deployed.wait_relayed()
    deployed.router.send(signal.SIGCONT)
    deployed.wait_known(1, 1, 1)
    assert deployed.restores == before, "it came through the queue"


@pytest.mark.parametrize("deployed", [(0, QUEUE // 2, LAST)], indirect=True)
def test_what_a_full_queue_dropped_is_noticed_by_a_beat_and_restored_from_the_relays_index(
    deployed: Deployment,
) -> None:
    """Nothing follows the dropped events but the relay's beat."""
    deployed.store(1)
    deployed.wait_known(1, 0, 0)
    before = deployed.restores
    deployed.router.send(signal.SIGSTOP)
    unread = -deployed.messages
    while deployed.sent < MOST_EVENTS and unread + deployed.messages < QUEUE + DROPPED:
        deployed.store(QUEUE // 20)
    deployed.store_last()
    deployed.wait_relayed()
    assert unread + deployed.messages > QUEUE + DROPPED
    wait_until(lambda: deployed.watched() == (deployed.sent, 0), "the watcher has seen every one")
    deployed.router.send(signal.SIGCONT)
    deployed.wait_known(1, 1, 1)
    assert deployed.restores > before, "the worker's own metrics show that a router had lost events"
    assert "dumping entire tree" in deployed.host.log()
