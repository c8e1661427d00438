"""The loop around the judge: probes through a handler, verdicts for the runtime's canary."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from sglang_worker.observability.health.judge import Bounds, Reading
from sglang_worker.observability.health.monitor import HealthMonitor, Watched
from sglang_worker.observability.health.probe import Asked
from sglang_worker.workers.health import for_rank, normal_end

from tests.support.wait import wait_until_async

BOUNDS = Bounds(interval_s=10, retry_s=1, answer_s=5, stall_s=20)
GOOD = {"token_ids": [1], "finish_reason": "length"}


class Context:
    def __init__(self) -> None:
        self.stopped = asyncio.Event()

    def stop_generating(self) -> None:
        self.stopped.set()


class Engine:
    """A handler whose answers are steered, and what the monitor sees of it."""

    def __init__(self, ranks: int = 1) -> None:
        self.ranks = ranks
        self.answers: list[Any] = [GOOD]
        self.hangs = False
        self.others = False
        self.paused = False
        self.leftovers = 0
        self.asked: list[Mapping[str, Any]] = []
        self.running = 0

    async def generate(self, request: Any, context: Any) -> AsyncIterator[Any]:
        self.asked.append(request)
        self.running += 1
        try:
            if self.hangs:
                await context.stopped.wait()
                return
            for answer in self.answers:
                if isinstance(answer, Exception):
                    raise answer
                yield answer
        finally:
            self.running -= 1

    def read(self) -> Reading:
        return Reading(turns=(None,) * self.ranks, outputs=1.0, others=self.others)

    def held_probes(self) -> int:
        return self.running + self.leftovers


class Bench:
    def __init__(self, ranks: int = 1, canary_timeout_s: float = 3.0) -> None:
        self.engine = Engine(ranks)
        self.now_s = 100.0
        asked = Asked(
            handler=self.engine.generate,
            payload={"token_ids": [1]},
            normal_end=normal_end,
            for_rank=for_rank,
            new_context=Context,
            ranks=ranks,
        )
        self.monitor = HealthMonitor(
            Watched(asked=asked, activity=self.engine, may_ask=lambda: not self.engine.paused),
            BOUNDS,
            cold=False,
            canary_timeout_s=canary_timeout_s,
            clock=lambda: self.now_s,
        )

    async def spend(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.now_s += 0.5
            self.monitor.tick()
            for _ in range(5):
                await asyncio.sleep(0)

    async def canary(self) -> list[Any]:
        return [chunk async for chunk in self.monitor.answer({}, None)]


def run(test: Callable[[], Any]) -> None:
    asyncio.run(test())


def test_an_answering_engine_is_healthy_and_probed_once_per_interval() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.spend(30)
        assert bench.monitor.fault is None
        assert len(bench.engine.asked) == 3

    run(scenario)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([], "yielded nothing"),
        ([{"token_ids": [1]}], "without a finish reason"),
        ([{"token_ids": [], "finish_reason": "error: out of memory"}], "out of memory"),
        ([{"token_ids": [], "finish_reason": "abort"}], "abort"),
        ([GOOD, ValueError("lost")], "lost"),
    ],
)
def test_whatever_is_no_normal_end_is_a_fault_and_a_normal_one_its_end(
    answers: list[Any], words: str
) -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.engine.answers = answers
        await bench.spend(1)
        assert words in str(bench.monitor.fault)
        bench.engine.answers = [GOOD]
        await bench.spend(2)
        assert bench.monitor.fault is None

    run(scenario)


def test_a_hung_engine_holds_one_probe_at_most_and_it_is_aborted() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.engine.hangs = True
        await bench.spend(5)
        assert bench.engine.running == 1
        bench.engine.leftovers = 1
        await bench.spend(2)
        assert "does not answer" in str(bench.monitor.fault)
        assert bench.engine.running == 0, "the late probe was aborted"
        asked = len(bench.engine.asked)
        await bench.spend(60)
        assert len(bench.engine.asked) == asked, "the engine still holds the aborted one"
        bench.engine.leftovers, bench.engine.hangs = 0, False
        await bench.spend(2)
        assert bench.monitor.fault is None

    run(scenario)


def test_every_data_parallel_rank_gets_its_own_probe() -> None:
    async def scenario() -> None:
        bench = Bench(ranks=3)
        await bench.spend(1)
        ranks = sorted(request["routing"]["dp_rank"] for request in bench.engine.asked)
        assert ranks == [0, 1, 2]

    run(scenario)


def test_a_paused_engine_is_left_alone_and_a_probe_under_way_is_taken_back() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.engine.hangs = True
        await bench.spend(1)
        bench.engine.paused = True
        await bench.spend(60)
        assert bench.engine.running == 0
        assert len(bench.engine.asked) == 1
        assert bench.monitor.fault is None

    run(scenario)


def test_the_canary_gets_a_fresh_probes_answer() -> None:
    async def scenario() -> None:
        bench = Bench()
        await bench.spend(1)
        assert await bench.canary() == [GOOD]
        assert len(bench.engine.asked) == 2

    run(scenario)


def test_the_canary_gets_nothing_from_a_sick_engine() -> None:
    async def scenario() -> None:
        bench = Bench()
        bench.engine.answers = []
        assert await bench.canary() == []

    run(scenario)


def test_the_canary_is_told_in_time_that_a_busy_engine_is_well() -> None:
    async def scenario() -> None:
        bench = Bench(canary_timeout_s=0.05)
        bench.engine.hangs = bench.engine.others = True
        assert len(await bench.canary()) == 1
        assert len(await bench.canary()) == 1
        assert len(bench.engine.asked) == 1, "one probe per rank, however often somebody asks"
        bench.monitor.stop()
        await wait_until_async(lambda: bench.engine.running == 0, "the probe is taken back")

    run(scenario)


def test_the_canary_does_not_wait_for_a_paused_engine() -> None:
    async def scenario() -> None:
        bench = Bench(canary_timeout_s=3600)
        bench.engine.paused = True
        assert len(await bench.canary()) == 1
        assert bench.engine.asked == []

    run(scenario)
