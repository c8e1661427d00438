"""Whether the worker is fit to serve: pushed to the listener, and to the runtime's own probes.

The runtime's canary judges the engine. This judges the runners: schedulers are asked now and then,
and an answer that no longer matches the startup report fails health (DESIGN section 4).
"""

from __future__ import annotations

import asyncio
import logging

from sglang_worker.boot.startup import Started
from sglang_worker.engine import dynamo_compat
from sglang_worker.runners.later import RunnerWatch

logger = logging.getLogger(__name__)

RUNNER_CHECK_INTERVAL_S = 30.0
FIT_CHECK_INTERVAL_S = 0.5


class HealthState:
    def __init__(self, started: Started, runtime: object) -> None:
        self._started = started
        self._runtime = runtime
        self._told: str | None = "starting"
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Call it when the worker has registered: from now on it counts as fit."""
        self._tell()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._watch())]
        if (watch := self._started.runners) is not None:
            self._tasks.append(loop.create_task(self._ask_schedulers(watch)))

    def stop(self) -> None:
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
        return None

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
                # A scheduler that cannot answer is the canary's business; ask again later.
                logger.warning("the schedulers' runner reports could not be read", exc_info=True)
                continue
            watch.note(states)

    def _tell(self) -> None:
        fault = self._told = self.fault
        if fault is not None:
            logger.error("unhealthy: %s", fault)
        if fault is not None:
            dynamo_compat.set_health(self._runtime, False)
        if self._started.listener is not None:
            self._started.listener.publish(healthy=fault is None, unhealthy_reason=fault)
