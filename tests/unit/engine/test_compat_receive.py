"""The receive loop as SGLang has it, over a real socket: what a stream gets when messages queue."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
import zmq.asyncio
from sglang_worker.engine import compat_receive
from sglang_worker.engine.generation import Generation

STEPS = 400
OTHER = b"other"


class Manager:
    """`TokenizerManager` as far as a request is concerned: one state, outputs that are collected
    until its stream asks, and a loop that never waits while a message is there."""

    def __init__(self, address: str) -> None:
        self.recv_from_detokenizer = zmq.asyncio.Context.instance().socket(zmq.PULL)
        self.recv_from_detokenizer.bind(address)
        self.rid_to_state: dict[str, Any] = {}
        self.other_came = asyncio.Event()
        self._outputs: list[int] = []
        self._came = asyncio.Event()

    async def receive(self) -> None:
        while True:
            message = await self.recv_from_detokenizer.recv()
            if message == OTHER:
                self._result_dispatcher(message)
            else:
                await self._handle_batch_output(int(message))

    def _result_dispatcher(self, message: bytes) -> None:
        self.other_came.set()

    async def _handle_batch_output(self, number: int) -> None:
        self._outputs.append(number)
        self._came.set()
        # SGLang lets streams run after every few outputs.
        await asyncio.sleep(0)

    async def generate_request(self, request: Any, _: None) -> Any:
        while True:
            await self._came.wait()
            self._came.clear()
            outputs, self._outputs = self._outputs, []
            yield outputs
            if outputs[-1] == STEPS - 1:
                return


@pytest.fixture
def address(tmp_path: Any) -> Iterator[str]:
    yield f"ipc://{tmp_path}/outputs"


async def answers(manager: Manager, address: str, *, pause: bool) -> list[list[int]]:
    """What one stream got of `STEPS` messages, sent at once or each after the one before."""
    sender = zmq.asyncio.Context.instance().socket(zmq.PUSH)
    sender.connect(address)
    generation = Generation.__new__(Generation)
    generation._open(manager, SimpleNamespace(), {"one"})
    chunks: list[list[int]] = []
    arrived = asyncio.Semaphore(0)

    async def read() -> None:
        chunks.append(await generation.first())
        arrived.release()
        async for chunk in generation.rest():
            chunks.append(chunk)
            arrived.release()

    receiving, reading = asyncio.create_task(manager.receive()), asyncio.create_task(read())
    try:
        async with asyncio.timeout(60):
            for number in range(STEPS):
                await sender.send(str(number).encode())
                if pause:
                    await arrived.acquire()
            await reading
    finally:
        receiving.cancel()
        reading.cancel()
        await asyncio.gather(receiving, reading, return_exceptions=True)
        sender.close(0)
        manager.recv_from_detokenizer.close(0)
    return chunks


async def test_tokens_that_come_one_by_one_are_handed_out_one_by_one(address: str) -> None:
    manager = Manager(address)
    assert compat_receive.watch(manager) is compat_receive.pace_of(manager)
    assert await answers(manager, address, pause=True) == [[one] for one in range(STEPS)]
    assert compat_receive.pace_of(manager).behind_s == 0


async def test_tokens_that_queue_come_in_larger_chunks_all_and_in_order(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sglang_worker.engine.pace.PATIENCE_S", 0.0)
    manager = Manager(address)
    compat_receive.watch(manager)
    chunks = await answers(manager, address, pause=False)
    assert [one for chunk in chunks for one in chunk] == list(range(STEPS))
    assert len(chunks) < STEPS / 2, f"{len(chunks)} chunks for {STEPS} tokens that had queued"
    assert compat_receive.pace_of(manager).behind_s > 0


async def test_without_the_watch_every_queued_token_is_a_chunk_of_its_own(address: str) -> None:
    manager = Manager(address)
    chunks = await answers(manager, address, pause=False)
    assert len(chunks) > STEPS / 2, "then the test above proves nothing"


def test_a_manager_that_receives_in_another_way_is_left_alone() -> None:
    manager = SimpleNamespace(recv_from_detokenizer=object())
    assert compat_receive.watch(manager) is None
    assert not compat_receive.pace_of(manager).behind


async def test_watching_twice_keeps_the_first_pace(address: str) -> None:
    manager = Manager(address)
    pace = compat_receive.watch(manager)
    handle = manager._handle_batch_output
    assert compat_receive.watch(manager) is pace
    assert manager._handle_batch_output == handle
    manager.recv_from_detokenizer.close(0)


async def test_a_backlog_that_ends_with_another_message_has_ended(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two outputs that come together an hour later would pass for an hour of backlog."""
    monkeypatch.setattr("sglang_worker.engine.pace.PATIENCE_S", 0.0)
    manager = Manager(address)
    pace = compat_receive.watch(manager)
    assert pace is not None
    sender = zmq.asyncio.Context.instance().socket(zmq.PUSH)
    sender.connect(address)
    for message in (b"0", b"1", b"2", OTHER):
        await sender.send(message)
    async with asyncio.timeout(60):
        await manager.recv_from_detokenizer.poll()
        receiving = asyncio.create_task(manager.receive())
        await manager.other_came.wait()
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    sender.close(0)
    manager.recv_from_detokenizer.close(0)
    assert not pace.behind
    behind_s = pace.behind_s
    pace.begin(False)
    assert pace.behind_s == behind_s, "nothing lasts until the next output"
