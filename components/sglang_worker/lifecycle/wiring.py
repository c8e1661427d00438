"""Builds the lifecycle of one worker from the real parts, and is what the main program drives.

lifecycle = build(parts)                # before the handlers exist: they need lifecycle.gate
await lifecycle.start()                 # once serving has begun: the first registration
code = await lifecycle.until_stopped()  # signals and death arrive through on_signal / on_death
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from sglang_worker.config.worker_config import LifecycleSettings
from sglang_worker.errors import EngineDiedError, ExitCode
from sglang_worker.lifecycle.binding_nudge import nudge_forever
from sglang_worker.lifecycle.completion import CompletionCheck, CompletionProbes
from sglang_worker.lifecycle.controller import LifecycleController
from sglang_worker.lifecycle.core import CoreSettings, LifecycleCore
from sglang_worker.lifecycle.death import hand_over
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.listed_discovery import ListedDiscovery
from sglang_worker.lifecycle.ports import EngineControl, StatePublisher
from sglang_worker.lifecycle.registration import Discovery, RegistrationOwner, Written
from sglang_worker.lifecycle.runtime_metrics import Address, read_metrics
from sglang_worker.lifecycle.shutdown import (
    RunningRequests,
    Shutdown,
    ShutdownTimes,
    StopSteps,
)
from sglang_worker.lifecycle.sockets import UnsentBytesReader
from sglang_worker.lifecycle.states import Status
from sglang_worker.lifecycle.watchdog import Watchdog

logger = logging.getLogger(__name__)


class SilentPublisher:
    """Without a system listener nothing shows the state."""

    def publish(self, status: Status) -> None:
        return None

    async def publish_acknowledged(self, status: Status) -> None:
        return None


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """The rest of the worker, as the lifecycle sees it.

    ``discovery``: the two writes for `generate`; ``listed``: does the endpoint's own client see
    this instance. ``metrics_address``: of the runtime's own server, None while unknown; the whole
    field is None without a system port. ``held_requests``: ids in SGLang, probes excluded.
    ``nudge``: the cheap binding call.
    """

    settings: LifecycleSettings
    worker_id: int
    response_plane: str
    discovery: Discovery
    listed: Callable[[], bool]
    engine: EngineControl
    held_requests: Callable[[], int]
    metrics_address: Callable[[], Address | None] | None
    requests: RunningRequests
    nudge: Callable[[], object]
    stop_steps: StopSteps
    publisher: StatePublisher = SilentPublisher()


class WorkerLifecycle:
    def __init__(self, parts: Parts, gate: AdmissionGate) -> None:
        self._parts = parts
        self.gate = gate
        metrics: Callable[[], Awaitable[str]] | None = None
        if (address := parts.metrics_address) is not None:

            def metrics() -> Awaitable[str]:
                return read_metrics(address)

        self.probes = CompletionProbes(UnsentBytesReader().read, parts.held_requests, metrics)
        self.completion = CompletionCheck(gate, self.probes)
        self.registration = RegistrationOwner(ListedDiscovery(parts.discovery, parts.listed))
        core = LifecycleCore(
            CoreSettings(
                worker_id=str(parts.worker_id),
                grace_s=parts.settings.routing_grace_s,
                can_drain=parts.response_plane == "tcp",
            ),
            gate,
            self.registration,
            self.completion,
            parts.publisher,
        )
        self.controller = LifecycleController(core, parts.engine)
        self.watchdog = Watchdog()
        self._stop: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._nudging: asyncio.Task[None] | None = None

    async def start(self) -> bool:
        """The first registration through its owner. False: discovery did not confirm it."""
        self._nudging = asyncio.ensure_future(nudge_forever(self.gate, self._parts.nudge))
        return await self.controller.start() is Written.CONFIRMED

    def on_signal(self, signum: int) -> None:
        """First signal: stop gracefully. Second: leave at once; children die with the process."""
        if self._stop.done():
            logger.warning("second signal: leaving at once")
            os._exit(128 + signum)
        logger.info("%s: stopping", signal.Signals(signum).name)
        self._stop.set_result(signum)

    def on_death(self, what: object) -> None:
        """An engine process died, whatever the worker was doing."""
        if self._death.done():
            return
        self._death.set_result(str(what))
        if self._stop.done():
            logger.error("the engine died during the shutdown: %s", what)
            self._parts.requests.fail_all_without_engine()

    async def until_stopped(self) -> ExitCode:
        """Wait for a signal and stop, or raise EngineDiedError after handing everything over."""
        ends: set[asyncio.Future[Any]] = {self._stop, self._death}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        try:
            if not self._stop.done():
                logger.error("the engine died: %s", self._death.result())
                await hand_over(self.controller, self.completion, self._parts.requests)
                raise EngineDiedError(f"the engine died: {self._death.result()}")
            times = ShutdownTimes(budget_s=self._parts.settings.shutdown_timeout_s)
            steps = self._parts.stop_steps
            await Shutdown(
                self.controller, self.completion, self._parts.requests, steps, times, self.watchdog
            ).run(self._stop.result())
        finally:
            if self._nudging is not None:
                self._nudging.cancel()
        return ExitCode.STOPPED


def build(parts: Parts, gate: AdmissionGate) -> WorkerLifecycle:
    """On the running loop. The handlers were built with the same ``gate``."""
    return WorkerLifecycle(parts, gate)
