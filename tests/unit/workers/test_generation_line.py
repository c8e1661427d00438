"""The line in front of the generator."""

from __future__ import annotations

import asyncio

import pytest
from sglang_worker.workers.generation_line import GenerationLine, LineFull


class Visitor:
    """Holds its turn until it is told to leave."""

    def __init__(self, line: GenerationLine, name: str, order: list[str], front: bool = False):
        self.leave = asyncio.Event()
        self._line, self._name, self._order, self._front = line, name, order, front
        self.task = asyncio.ensure_future(self._visit())

    async def _visit(self) -> None:
        async with self._line.turn(front=self._front):
            self._order.append(self._name)
            await self.leave.wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_at_a_time_in_order_and_probes_first() -> None:
    order: list[str] = []
    line = GenerationLine(1, 4)
    visitors = [Visitor(line, name, order) for name in ("a", "b")]
    await settle()
    probe = Visitor(line, "probe", order, front=True)
    await settle()
    assert order == ["a"] and line.waiting == 2
    for one in (visitors[0], probe, visitors[1]):
        one.leave.set()
        await settle()
    assert order == ["a", "probe", "b"] and line.waiting == 0


async def test_replicas_run_side_by_side() -> None:
    order: list[str] = []
    line = GenerationLine(2, 4)
    visitors = [Visitor(line, name, order) for name in ("a", "b", "c")]
    await settle()
    assert order == ["a", "b"]
    for one in visitors:
        one.leave.set()
    await asyncio.gather(*(one.task for one in visitors))
    assert order == ["a", "b", "c"]


async def test_a_full_line_refuses_at_once_but_never_a_probe() -> None:
    order: list[str] = []
    line = GenerationLine(1, 1)
    visitors = [Visitor(line, name, order) for name in ("a", "b")]
    await settle()
    with pytest.raises(LineFull, match="1 generations wait already"):
        async with line.turn():
            pass
    visitors.append(Visitor(line, "probe", order, front=True))
    for one in visitors:
        one.leave.set()
    await asyncio.gather(*(one.task for one in visitors))


async def test_who_gives_up_waiting_leaves_the_line() -> None:
    order: list[str] = []
    line = GenerationLine(1, 1)
    holder, waiter = Visitor(line, "a", order), Visitor(line, "b", order)
    await settle()
    waiter.task.cancel()
    await settle()
    assert line.waiting == 0
    holder.leave.set()
    await holder.task
    async with line.turn():
        pass


async def test_a_slot_handed_over_to_someone_who_just_gave_up_is_not_lost() -> None:
    order: list[str] = []
    line = GenerationLine(1, 2)
    holder, waiter = Visitor(line, "a", order), Visitor(line, "b", order)
    await settle()
    holder.leave.set()
    await holder.task
    waiter.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter.task
    async with asyncio.timeout(1), line.turn():
        order.append("c")
    assert order[-1] == "c"
