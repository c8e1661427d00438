"""The health monitor on a real engine: what it sees of it, and what it leaves in it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.engine.compat_health import SglangActivity
from sglang_worker.observability.health.judge import Bounds
from sglang_worker.observability.health.monitor import HealthMonitor, Watched
from sglang_worker.observability.health.probe import Asked
from sglang_worker.runners import startup as runners
from sglang_worker.workers.health import for_rank, generate_payload, normal_end

from tests.engine.request_host import PROBE_KEY, FakeContext, RequestHost
from tests.support.wait import wait_until_async

pytestmark = pytest.mark.engine
BOUNDS = Bounds(interval_s=0.2, retry_s=0.1, answer_s=1.0, stall_s=20.0)
# Many turns of the scheduler's loop for one prompt.
CHUNK_TOKENS = 16


class Context(FakeContext):
    def stop_generating(self) -> None:
        self.hang_up()


class Scene:
    def __init__(self, host: RequestHost, folder: Path) -> None:
        self.host = host
        self.activity = SglangActivity(host.manager, folder, host.engine.engine.server_args)

    def monitor(self, bounds: Bounds = BOUNDS) -> HealthMonitor:
        asked = Asked(
            handler=self.host.handler.generate,
            payload=generate_payload(PROBE_KEY, None, self.host.engine.limits.vocab_size),
            normal_end=normal_end,
            for_rank=for_rank,
            new_context=Context,
        )
        may_ask = lambda: not self.host.control.is_paused  # noqa: E731
        return HealthMonitor(
            Watched(asked=asked, activity=self.activity, may_ask=may_ask), bounds, cold=False
        )

    @property
    def turns(self) -> int:
        seen = self.activity.read().turns[0]
        assert seen is not None, "the scheduler's loop is not seen"
        return seen

    def scheduler_pid(self) -> int:
        names = self.host.engine.process_names
        return next(pid for pid, name in names.items() if name.startswith("scheduler"))


@pytest.fixture(scope="module")
def scene(checkpoint: Callable[[str], Path]) -> Iterator[Scene]:
    exported: dict[str, str] = {}
    folder = runners.prepare(exported, strict=False)
    os.environ.update(exported)
    try:
        host = RequestHost(checkpoint("gdn"), "--chunked-prefill-size", str(CHUNK_TOKENS))
    finally:
        for name in exported:
            os.environ.pop(name, None)
    yield Scene(host, folder.path)
    host.close()
    folder.remove()


async def run_monitor(monitor: HealthMonitor, scenario: Callable[[], Any]) -> None:
    """``scenario`` beside the running monitor, which leaves nothing in the engine."""
    running = asyncio.ensure_future(monitor.run())
    try:
        await asyncio.wait_for(scenario(), 60)
    finally:
        monitor.stop()
        running.cancel()


def test_probes_pass_and_leave_no_id_behind(scene: Scene) -> None:
    async def scenario() -> None:
        before = scene.turns
        assert [chunk["finish_reason"] async for chunk in monitor.answer({}, None)] == ["length"]
        assert scene.turns > before
        assert monitor.fault is None
        monitor.stop()
        await scene.host.settled()

    monitor = scene.monitor()
    scene.host.run(run_monitor(monitor, scenario))


def test_a_hung_scheduler_holds_one_probe_and_gives_it_up_when_it_goes_on(scene: Scene) -> None:
    async def scenario() -> None:
        pid = scene.scheduler_pid()
        await wait_until_async(lambda: scene.activity.held_probes() == 0, "no probe is under way")
        os.kill(pid, signal.SIGSTOP)
        try:
            await wait_until_async(lambda: monitor.fault, "the hang is seen")
            for _ in range(50):
                monitor.tick()
                await asyncio.sleep(0)
            assert scene.activity.held_probes() == 1
        finally:
            os.kill(pid, signal.SIGCONT)
        await wait_until_async(lambda: monitor.fault is None, "the engine counts as well again")
        monitor.stop()
        await scene.host.settled()

    monitor = scene.monitor()
    scene.host.run(run_monitor(monitor, scenario))


def test_a_prefill_longer_than_the_answer_bound_is_seen_as_work(scene: Scene) -> None:
    """Nothing arrives until the prompt is done; only the loop's turns tell."""
    host = scene.host
    bounds = Bounds(interval_s=0.01, retry_s=0.01, answer_s=0.01, stall_s=20.0)
    monitor = scene.monitor(bounds)

    async def scenario() -> None:
        length = host.engine.limits.usable_context - 8
        prompt = [5 + (index * 7) % 200 for index in range(length)]
        request = host.request(prompt, stop_conditions={"max_tokens": 1, "ignore_eos": True})
        before = scene.turns
        answer = asyncio.ensure_future(host.stream(request))
        faults = []
        while not answer.done():
            await asyncio.sleep(0.002)
            if not answer.done() and scene.activity.read().others:
                monitor.tick()
                faults.append(monitor.fault)
        assert scene.turns - before >= length // CHUNK_TOKENS
        assert len(faults) > 5 and not any(faults)
        monitor.stop()
        await host.settled()

    host.run(asyncio.wait_for(scenario(), 60))


def test_a_paused_scheduler_still_turns(scene: Scene) -> None:
    host = scene.host

    async def scenario() -> None:
        await host.control.pause("in_place")
        try:
            before = scene.turns
            await wait_until_async(lambda: scene.turns > before + 2, "the paused loop turns")
            monitor.tick()
            assert monitor.fault is None
            assert scene.activity.held_probes() == 0
        finally:
            await host.control.continue_({})

    monitor = scene.monitor()
    host.run(asyncio.wait_for(scenario(), 60))


def test_a_weight_update_shows_as_a_control_call_while_it_lasts(
    scene: Scene, checkpoint: Callable[[str], Path]
) -> None:
    host = scene.host

    async def scenario() -> None:
        seen = []
        update = asyncio.ensure_future(
            host.control.update_weights_from_disk({"model_path": str(checkpoint("gdn"))})
        )
        while not update.done():
            seen.append(scene.activity.read().control)
            await asyncio.sleep(0.002)
        assert "update_weights_from_disk" in seen
        assert scene.activity.read().control is None

    host.run(asyncio.wait_for(scenario(), 60))
