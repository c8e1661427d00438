from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from sglang_worker.boot import collection
from sglang_worker.boot.collection import FullCollections

from tests.support.wait import wait_until_async


class World:
    def __init__(self) -> None:
        self.now, self.streams, self.younger = 100.0, 0, 0
        self.policy = FullCollections(lambda: self.streams, lambda: self.now, lambda: self.younger)


def test_a_quiet_worker_collects_once_enough_has_been_allocated() -> None:
    world = World()
    world.now += collection.LEAST_S
    assert not world.policy.due()
    world.younger = collection.YOUNGER
    assert world.policy.due()
    assert not world.policy.due(), "not again at once"
    world.now += collection.LEAST_S
    assert world.policy.due()


def test_a_busy_worker_waits_until_it_is_quiet() -> None:
    world = World()
    world.younger, world.streams = 1000, collection.QUIET_STREAMS + 1
    world.now += collection.PATIENCE_S - 1
    assert not world.policy.due()
    world.streams = collection.QUIET_STREAMS
    assert world.policy.due()


def test_a_worker_that_is_never_quiet_collects_all_the_same() -> None:
    world = World()
    world.younger, world.streams = 1000, 8000
    world.now += collection.PATIENCE_S
    assert world.policy.due()
    assert not world.policy.due()


class Knot:
    def __init__(self) -> None:
        self.self = self


async def test_garbage_in_cycles_goes_at_the_next_quiet_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collection, "CHECK_S", 0.01)
    monkeypatch.setattr(collection, "LEAST_S", 0.0)
    before = gc.get_threshold()
    streams = [collection.QUIET_STREAMS + 1]
    policy = FullCollections(lambda: streams[0], younger=lambda: collection.YOUNGER)
    running = asyncio.ensure_future(policy.run())
    await asyncio.sleep(0)
    assert gc.get_threshold() == (*before[:2], collection.NEVER)
    knot = Knot()
    gone = weakref.ref(knot)
    gc.collect(1)  # old by now: only a full collection sees it
    del knot
    assert gone() is not None
    streams[0] = 0
    await wait_until_async(lambda: gone() is None, "the knot is collected", deadline_s=5)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert gc.get_threshold() == before
