"""Stand-ins for what is outside the lifecycle, for tests without engine and runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from sglang_worker.lifecycle.completion import CompletionCheck, CompletionProbes
from sglang_worker.lifecycle.controller import LifecycleController
from sglang_worker.lifecycle.core import CoreSettings, LifecycleCore
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.registration import RegistrationOwner
from sglang_worker.lifecycle.states import State, Status

from tests.support.wait import wait_until_async

IDLE_METRICS = 'dynamo_component_inflight_requests{dynamo_endpoint="generate"} 0\n'


class FakeDiscovery:
    """Keeps what discovery would hold. ``fail`` makes calls raise; ``hold`` lets them hang until
    `release`, and the write then lands."""

    def __init__(self) -> None:
        self.present = False
        self.calls: list[str] = []
        self.running = 0
        self.fail = 0  # how many calls fail; -1: all
        self.hold: asyncio.Event | None = None

    async def register(self) -> None:
        await self._call("register", True)

    async def withdraw(self) -> None:
        await self._call("withdraw", False)

    async def _call(self, name: str, present: bool) -> None:
        self.calls.append(name)
        self.running += 1
        assert self.running == 1, "discovery calls overlap"
        try:
            await asyncio.sleep(0)
            if self.hold is not None:
                await self.hold.wait()
            if self.fail:
                self.fail -= self.fail > 0
                raise Exception("discovery is away")
            self.present = present
        finally:
            self.running -= 1


class FakeEngine:
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fail: set[str] = set()
        self.hold: asyncio.Event | None = None

    async def _call(self, name: str, *details: Any) -> dict[str, bool]:
        self.calls.append((name, *details))
        for _ in range(3):
            await asyncio.sleep(0)
        if self.hold is not None:
            await self.hold.wait()
        if name in self.fail:
            raise RuntimeError(f"{name} failed in SGLang")
        return {"success": True}

    async def pause(self, mode: str) -> Any:
        return await self._call("pause", mode)

    async def continue_(self, body: Mapping[str, Any]) -> Any:
        return await self._call("continue")

    async def release_memory(self, tags: list[str]) -> Any:
        return await self._call("release", *tags)

    async def resume_memory(self, tags: list[str]) -> Any:
        return await self._call("resume_memory", *tags)


class FakePublisher:
    """Remembers what was shown, with the gate's state at that moment."""

    def __init__(self, gate: AdmissionGate) -> None:
        self._gate = gate
        self.shown: list[str] = []
        self.acknowledged: list[tuple[str, bool]] = []
        self.hold: asyncio.Event | None = None

    def publish(self, status: Status) -> None:
        self.shown.append(status.state.value)

    async def publish_acknowledged(self, status: Status) -> None:
        if self.hold is not None:
            await self.hold.wait()
        self.acknowledged.append((status.state.value, self._gate.closed))


class World:
    """A lifecycle whose surroundings the test controls."""

    def __init__(
        self, *, grace_s: float = 0.02, clock: Callable[[], float] | None = None, **more: Any
    ):
        self.gate = AdmissionGate(clock) if clock else AdmissionGate()
        self.discovery = FakeDiscovery()
        self.engine = FakeEngine()
        self.publisher = FakePublisher(self.gate)
        self.unsent = 0
        self.sglang = 0
        self.metrics = IDLE_METRICS
        self.registration = RegistrationOwner(self.discovery)
        probes = CompletionProbes(lambda: self.unsent, lambda: self.sglang, self._metrics)
        self.core = LifecycleCore(
            CoreSettings(worker_id="1234", grace_s=grace_s, **more),
            self.gate,
            self.registration,
            CompletionCheck(self.gate, probes),
            self.publisher,
            **({"clock": clock} if clock else {}),
        )
        self.controller = LifecycleController(self.core, self.engine)

    async def _metrics(self) -> str:
        return self.metrics

    async def started(self) -> World:
        await self.controller.start()
        assert self.discovery.present
        return self

    async def until(self, condition: Callable[[], bool], message: str = "the condition") -> None:
        await wait_until_async(condition, message, deadline_s=5.0, interval_s=0.002)


async def drained_world() -> World:
    world = await World().started()
    await world.controller.drain()
    await world.until(lambda: world.controller.state is State.DRAINED)
    return world
