"""A client that leaves in the very turn of the loop in which the first output comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from sglang_worker.engine.generation import Generation


class OlderManager:
    """SGLang's tokenizer manager as far as one request goes: it waits with ``asyncio.wait_for``,
    and its stream ends when the request is aborted."""

    def __init__(self) -> None:
        self.rid_to_state = {"one": SimpleNamespace(dispatched=True)}
        self.aborted: list[str] = []
        self.came = asyncio.Event()
        self._over = asyncio.Event()

    def abort_request(self, rid: str, abort_all: bool) -> None:
        self.aborted.append(rid)
        self._over.set()

    async def generate_request(self, request: Any, _: None) -> AsyncIterator[str]:
        await asyncio.wait_for(self.came.wait(), 60)
        yield "first output"
        await self._over.wait()
        del self.rid_to_state["one"]


async def opened(manager: OlderManager) -> tuple[Generation, asyncio.Task[Any]]:
    generation = Generation.__new__(Generation)
    generation._open(manager, SimpleNamespace(), {"one"})
    first = asyncio.create_task(generation.first())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return generation, first


async def test_a_cancellation_that_sglang_swallowed_is_made_good_by_an_abort() -> None:
    manager = OlderManager()
    async with asyncio.timeout(30):
        generation, first = await opened(manager)
        manager.came.set()
        await asyncio.sleep(0)
        generation.stop()
        assert await first == "first output", "else the cancellation was not swallowed"
        assert manager.aborted == ["one"]
        assert [output async for output in generation.rest()] == []
    assert generation.ended
    assert not manager.rid_to_state


async def test_a_client_that_leaves_later_aborts_once() -> None:
    manager = OlderManager()
    async with asyncio.timeout(30):
        generation, first = await opened(manager)
        manager.came.set()
        assert await first == "first output"
        assert manager.aborted == []
        generation.stop()
        assert [output async for output in generation.rest()] == []
    assert manager.aborted == ["one"]


class SlowPace:
    """Always behind; counts how often a stream waited."""

    behind = True

    def __init__(self) -> None:
        self.turns = 0

    async def turn(self) -> None:
        self.turns += 1


def output(index: int, finish: str | None = None) -> dict[str, Any]:
    reason = None if finish is None else {"type": finish}
    return {"index": index, "output_ids": [1], "meta_info": {"finish_reason": reason}}


async def turns_of(outputs: list[dict[str, Any]], ids: set[str]) -> int:
    async def stream() -> AsyncIterator[dict[str, Any]]:
        for one in outputs:
            yield one

    manager = SimpleNamespace(generate_request=lambda request, _: stream(), rid_to_state={})
    generation = Generation.__new__(Generation)
    generation._open(manager, SimpleNamespace(), ids)
    pace = SlowPace()
    generation._pace = pace  # type: ignore[assignment]
    heard = [await generation.first(), *[one async for one in generation.rest()]]
    assert heard == outputs
    assert generation.ended
    return pace.turns


async def test_a_stream_that_falls_behind_waits_after_every_output_but_the_last() -> None:
    outputs = [output(0) for _ in range(5)] + [output(0, "stop")]
    assert await turns_of(outputs, {"one"}) == 4, (
        "neither after the first, which is due, nor the last"
    )


async def test_samples_of_one_request_wait_together_not_one_after_the_other() -> None:
    ids = {f"sample {index}" for index in range(4)}
    rounds = [output(index) for _ in range(11) for index in range(4)]
    assert await turns_of(rounds, ids) == 10
