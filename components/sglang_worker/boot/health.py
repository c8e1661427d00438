"""Whether the worker is fit to serve: pushed to the listener, and to the runtime's own probes.

Three judges: the engine's processes live, it answers probes or makes progress
(`observability.health`), and its runners are what they reported at startup: schedulers are asked
now and then, and an answer that no longer matches fails health (DESIGN section 4).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from sglang_worker.boot.startup import Started
from sglang_worker.engine import dynamo_compat
from sglang_worker.engine.compat_health import SglangActivity
from sglang_worker.engine.diffusion import GeneratorEngine
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.observability.health.activity import Activity, CountedActivity
from sglang_worker.observability.health.judge import Bounds
from sglang_worker.observability.health.monitor import HealthMonitor, Watched
from sglang_worker.observability.health.steps import StepActivity
from sglang_worker.runners.folder import VARIABLE as REPORT_FOLDER
from sglang_worker.runners.later import RunnerWatch
from sglang_worker.workers.service import WorkerService

logger = logging.getLogger(__name__)

RUNNER_CHECK_INTERVAL_S = 30.0
FIT_CHECK_INTERVAL_S = 0.5
STARTING = "starting"


class HealthState:
    def __init__(
        self,
        started: Started,
        runtime: object,
        service: WorkerService,
        may_ask: Callable[[], bool],
    ) -> None:
        """Before the service serves. ``may_ask``: see `Watched`."""
        self._started = started
        self._runtime = runtime
        self._monitor = monitor(started, service, may_ask)
        if started.config.health.canary:
            service.answer_canary(self._monitor.answer)
        self._told: str | None = STARTING
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Call it when the worker has registered: from now on it counts as fit."""
        self._tell()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch()), loop.create_task(self._monitor.run())]
        if (watch := self._started.runners) is not None:
            self._tasks.append(loop.create_task(self._ask_schedulers(watch)))

    def stop(self) -> None:
        self._monitor.stop()
        for task in self._tasks:
            task.cancel()

    @property
    def fault(self) -> str | None:
        """Why the worker is not fit, in one sentence; None when it is."""
        if (death := self._started.engine.death) is not None:
            return f"the engine died: {death}"
        watch = self._started.runners
        if watch is not None and not watch.healthy:
            return watch.changes[0].sentence
        return self._monitor.fault

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(FIT_CHECK_INTERVAL_S)
            if self.fault != self._told:
                self._tell()

    async def _ask_schedulers(self, watch: RunnerWatch) -> None:
        while True:
            await asyncio.sleep(RUNNER_CHECK_INTERVAL_S)
            try:
                states = await self._started.engine.control.internal_states()
            except Exception:
                # A scheduler that cannot answer is the monitor's business; ask again later.
                logger.warning("the schedulers' runner reports could not be read", exc_info=True)
                continue
            watch.note(states)

    def _tell(self) -> None:
        before, self._told = self._told, self.fault
        fault = self._told
        if fault is not None:
            logger.error("unhealthy: %s", fault)
        elif before not in (None, STARTING):
            logger.info("healthy again")
        # Without a canary this is the runtime's whole health; with one its canary decides.
        dynamo_compat.set_health(self._runtime, fault is None)
        if self._started.outlet is not None:
            self._started.outlet.publish(healthy=fault is None, unhealthy_reason=fault)


def monitor(started: Started, service: WorkerService, may_ask: Callable[[], bool]) -> HealthMonitor:
    """The monitor of whatever engine was started, with the operator's bounds."""
    settings, rules = started.config.health, service.health_rules
    return HealthMonitor(
        Watched(asked=service.probe(), activity=activity_of(started), may_ask=may_ask),
        Bounds(
            interval_s=max(settings.canary_wait_s, rules.least_interval_s),
            answer_s=max(settings.answer_timeout_s, rules.least_answer_s),
            stall_s=settings.stall_timeout_s,
        ),
        cold=service.cold,
        canary_timeout_s=settings.canary_timeout_s,
    )


def activity_of(started: Started) -> Activity:
    """What can be seen of the engine's progress."""
    engine = started.engine
    if isinstance(engine, WorkerEngine):
        folder = os.environ.get(REPORT_FOLDER)
        path = None if folder is None else Path(folder)
        return SglangActivity(engine.tokenizer_manager, path, engine.engine.server_args)
    if isinstance(engine, GeneratorEngine):
        return StepActivity(engine.position, engine.held_request_ids)
    return CountedActivity(engine.held_request_ids)
