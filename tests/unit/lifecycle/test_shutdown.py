from __future__ import annotations

import asyncio
import threading
import time

import pytest
from sglang_worker.lifecycle.death import DeathTimes, hand_over
from sglang_worker.lifecycle.gate import LateRequest
from sglang_worker.lifecycle.shutdown import Shutdown, ShutdownTimes, StopSteps
from sglang_worker.lifecycle.states import State
from sglang_worker.lifecycle.watchdog import Watchdog

from tests.unit.lifecycle.fakes import World


class Ending:
    """The worker's other steps, and requests that end when they are failed."""

    def __init__(self, world: World, *, answers_abort: bool = True) -> None:
        self.world = world
        self.steps: list[str] = []
        self.tickets = []  # type: ignore[var-annotated]
        self.answers_abort = answers_abort
        self.serving_hangs = False

    def run_request(self) -> None:
        self.tickets.append(self.world.gate.admit())
        self.world.metrics = self.world.metrics.replace("} 0", "} 1")

    def end_requests(self) -> None:
        for ticket in self.tickets:
            ticket.release()
        self.world.metrics = self.world.metrics.replace("} 1", "} 0")

    def fail_all(self) -> None:
        self.steps.append("fail_all")
        if self.answers_abort:
            self.end_requests()

    def fail_all_without_engine(self) -> None:
        self.steps.append("fail_all_without_engine")
        self.world.metrics = self.world.metrics.replace("} 1", "} 0")

    async def deferred(self, signum: int) -> None:
        self.steps.append(f"deferred {signum}")

    async def serving_ended(self) -> None:
        self.steps.append("serving ended")
        if self.serving_hangs:
            await asyncio.Event().wait()

    def shutdown(self, watchdog: Watchdog | None = None, **times: float) -> Shutdown:
        steps = StopSteps(
            deferred_handlers=self.deferred,
            runtime_shutdown=lambda: self.steps.append("runtime"),
            serving_ended=self.serving_ended,
            engine_shutdown=lambda: self.steps.append("engine"),
        )
        merged = {"budget_s": 2.0, "failing_s": 0.5, "unanswered_s": 0.1, "step_s": 0.1, **times}
        return Shutdown(
            self.world.controller,
            self.world.core.completion,
            self,
            steps,
            ShutdownTimes(**merged),
            watchdog,
        )


CLEAN_END = ["deferred 15", "runtime", "serving ended", "engine"]


async def test_an_idle_worker_runs_the_steps_in_order() -> None:
    world = await World().started()
    ending = Ending(world)
    await ending.shutdown().run(15)
    assert ending.steps == CLEAN_END
    assert world.controller.state is State.STOPPING and not world.discovery.present


async def test_running_requests_finish_within_the_budget() -> None:
    world = await World().started()
    ending = Ending(world)
    ending.run_request()
    asyncio.get_running_loop().call_later(0.3, ending.end_requests)
    await ending.shutdown().run(15)
    assert ending.steps == CLEAN_END


async def test_what_is_left_at_the_end_of_the_budget_is_failed_as_migratable() -> None:
    world = await World().started()
    ending = Ending(world)
    ending.run_request()
    began_s = time.monotonic()
    await ending.shutdown(budget_s=0.8, failing_s=0.4).run(15)
    assert ending.steps == ["fail_all", *CLEAN_END]
    assert time.monotonic() - began_s < 2.0


async def test_a_scheduler_that_answers_no_abort_is_left_out() -> None:
    world = await World().started()
    ending = Ending(world, answers_abort=False)
    ending.run_request()
    world.sglang = 1
    await ending.shutdown(budget_s=0.8, failing_s=0.4).run(15)
    assert ending.steps == ["fail_all", "fail_all_without_engine", *CLEAN_END]


async def test_requests_that_arrive_during_the_grace_are_served_and_later_ones_refused() -> None:
    world = await World(grace_s=0.2).started()
    ending = Ending(world)
    running = asyncio.ensure_future(ending.shutdown().run(15))
    await world.until(lambda: not world.discovery.present)
    world.gate.admit().release()
    await world.until(lambda: world.gate.closed)
    with pytest.raises(LateRequest):
        world.gate.admit()
    await running


async def test_a_step_that_hangs_does_not_keep_the_others_from_running() -> None:
    world = await World().started()
    ending = Ending(world)
    ending.serving_hangs = True
    await ending.shutdown().run(15)
    assert ending.steps == CLEAN_END


@pytest.mark.parametrize("state", ["draining", "drained", "paused"])
async def test_only_the_grace_that_is_left_is_paid(state: str) -> None:
    world = await World(grace_s=0.4).started()
    await (world.controller.pause({}) if state == "paused" else world.controller.drain())
    if state == "drained":
        await world.until(lambda: world.controller.state is State.DRAINED)
    closes_at_s = world.core.life.closes_at_s
    assert closes_at_s is not None
    await asyncio.sleep(0.1)
    await Ending(world).shutdown().run(15)
    assert world.core.life.closes_at_s == closes_at_s
    assert time.monotonic() - closes_at_s < 0.3
    assert world.discovery.calls == ["register", "withdraw"]


async def test_a_grace_longer_than_the_budget_is_cut() -> None:
    world = await World(grace_s=60.0).started()
    began_s = time.monotonic()
    await Ending(world).shutdown(budget_s=0.6, failing_s=0.3).run(15)
    assert time.monotonic() - began_s < 2.0


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
async def test_discovery_in_trouble_delays_the_stop_but_never_prevents_it(trouble: str) -> None:
    world = await World().started()
    if trouble == "fails":
        world.discovery.fail = -1
    else:
        world.discovery.hold = asyncio.Event()
    ending = Ending(world)
    await ending.shutdown(discovery_s=0.1).run(15)
    assert ending.steps == CLEAN_END and world.gate.closed


async def test_requests_held_on_released_memory_are_failed_once_the_gate_is_closed() -> None:
    world = await World().started()
    await world.controller.release({})
    ending = Ending(world)
    ending.run_request()
    began_s = time.monotonic()
    await ending.shutdown(budget_s=30.0).run(15)
    assert ending.steps[0] == "fail_all" and time.monotonic() - began_s < 3.0
    assert ("continue",) not in world.engine.calls


# --- death ----------------------------------------------------------------------------------------


async def test_death_fails_requests_before_discovery_has_answered() -> None:
    world = await World().started()
    world.discovery.hold = asyncio.Event()
    ending = Ending(world)
    ending.run_request()
    times = DeathTimes(withdraw_s=0.2, streams_s=0.5)
    dying = asyncio.ensure_future(hand_over(world.controller, world.core.completion, ending, times))
    await asyncio.sleep(0)
    assert ending.steps == ["fail_all_without_engine"]
    with pytest.raises(LateRequest):
        world.gate.admit()
    began_s = time.monotonic()
    await dying
    assert time.monotonic() - began_s < 1.0
    world.discovery.hold.set()


async def test_death_withdraws_without_waiting_for_the_listener() -> None:
    world = await World().started()
    world.publisher.hold = asyncio.Event()
    times = DeathTimes(withdraw_s=0.2, streams_s=0.3)
    await hand_over(world.controller, world.core.completion, Ending(world), times)
    assert not world.discovery.present
    world.publisher.hold.set()
    await asyncio.sleep(0.02)
    assert world.discovery.calls == ["register", "withdraw"]


# --- watchdog -------------------------------------------------------------------------------------


def test_a_stage_that_hangs_is_noticed_from_another_thread() -> None:
    hung = threading.Event()
    names: list[str] = []

    def on_hang(name: str) -> None:
        names.append(name)
        hung.set()

    watchdog = Watchdog(on_hang)
    watchdog.start()
    with watchdog.stage("quick", 5.0):
        pass
    with watchdog.stage("runtime shutdown", 0.05):
        assert hung.wait(5.0)
    assert names == ["runtime shutdown"]


def test_a_watchdog_that_was_stopped_never_fires() -> None:
    names: list[str] = []
    watchdog = Watchdog(names.append)
    watchdog.start()
    with watchdog.stage("one", 0.02):
        watchdog.stop()
        watchdog._thread.join(5.0)
    assert not watchdog._thread.is_alive() and not names


def test_a_watchdog_knows_how_long_each_stage_took_and_the_present_one_so_far() -> None:
    now = [10.0]
    watchdog = Watchdog(clock=lambda: now[0])
    with watchdog.stage("first", 100):
        now[0] = 13.0
        assert watchdog.stage_seconds() == {"first": 3.0}
    with watchdog.stage("second", 100):
        now[0] = 17.0
        assert watchdog.stage_seconds() == {"first": 3.0, "second": 4.0}
    now[0] = 30.0
    assert watchdog.stage_seconds() == {"first": 3.0, "second": 4.0}
