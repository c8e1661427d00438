"""From a signal to the end of the process, within one budget.

Stages: withdraw, wait out the grace that is left, close admission, wait for completion, fail what
is left with the migratable error, run SGLang's deferred handlers, shut the runtime down, stop the
engine. `--shutdown-timeout` covers everything up to and including the failing; the rest takes
seconds. A watchdog thread ends the process when a stage hangs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from sglang_worker.lifecycle.completion import CompletionCheck
from sglang_worker.lifecycle.controller import LifecycleController
from sglang_worker.lifecycle.watchdog import Watchdog

logger = logging.getLogger(__name__)


class RunningRequests(Protocol):
    """How running requests are ended with an error on which the frontend goes on elsewhere."""

    def fail_all(self) -> None:
        """The engine is alive and is told to abort them."""

    def fail_all_without_engine(self) -> None:
        """The engine does not answer; nothing is asked of it."""


class StopSteps(msgspec.Struct, frozen=True):
    """The worker's own steps after the last request. All may block for seconds, none for long.

    ``serving_ended`` resolves when the runtime has let go of the endpoints.
    """

    deferred_handlers: Callable[[int], Awaitable[None]]
    runtime_shutdown: Callable[[], None]
    serving_ended: Callable[[], Awaitable[None]]
    engine_shutdown: Callable[[], None]


class ShutdownTimes(msgspec.Struct, frozen=True):
    """Seconds of each part.

    ``budget_s``: from the signal until the last request has ended or was failed; ``failing_s`` of
    it are kept for failing what is left. ``discovery_s``: how long to insist on a withdrawal that
    discovery does not confirm. ``unanswered_s``: how long a live scheduler has to answer an abort.
    ``step_s`` and ``engine_s``: the later steps. ``margin_s``: how late a stage may be before it
    counts as hanging.
    """

    budget_s: float
    failing_s: float = 4.0
    discovery_s: float = 10.0
    unanswered_s: float = 1.0
    step_s: float = 3.0
    engine_s: float = 12.0
    margin_s: float = 3.0

    @property
    def finishing_s(self) -> float:
        """How long requests may go on; never less than half of a small budget."""
        return self.budget_s - min(self.failing_s, self.budget_s / 2)


class Shutdown:
    def __init__(
        self,
        controller: LifecycleController,
        completion: CompletionCheck,
        requests: RunningRequests,
        steps: StopSteps,
        times: ShutdownTimes,
        watchdog: Watchdog | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._controller = controller
        self._completion = completion
        self._requests = requests
        self._steps = steps
        self._times = times
        self._watchdog = watchdog or Watchdog()
        self._clock = clock
        self._began_s = 0.0

    async def run(self, signum: int) -> None:
        """Stop; returns when the process may exit with code 0."""
        self._began_s = self._clock()
        times = self._times
        self._watchdog.start()
        try:
            with self._watchdog.stage("finish requests", times.finishing_s + times.margin_s):
                finished = await self._finish_requests()
            if not finished:
                with self._watchdog.stage("fail requests", times.failing_s + times.margin_s):
                    await self._fail_requests()
            await self._leave(signum)
        finally:
            self._watchdog.stop()
        logger.info("stopped in %.1f s", self._clock() - self._began_s)

    def _left_s(self, until_s: float) -> float:
        return max(0.0, self._began_s + until_s - self._clock())

    async def _finish_requests(self) -> bool:
        """Withdraw, pay the grace, close, wait. False: something is still running."""
        core = self._controller.core
        stopping = self._controller.stop_soon()
        # Discovery may fail or hang. Then the gate closes without its word, and late requests are
        # offered to other workers.
        patience_s = min(self._times.discovery_s, self._times.finishing_s / 2)
        await asyncio.wait({stopping}, timeout=patience_s)
        if not stopping.done() or core.life.withdrawn_at_s is None:
            logger.warning("shutdown: discovery has not confirmed the withdrawal; going on")
            core.gate.close_at(self._clock() + core.life.grace_s)
        # However long the grace: the gate is shut when the time for finishing is over.
        core.gate.close_at(self._began_s + self._times.finishing_s)
        core.watch_completion()
        await core.until_closed()
        if core.life.released and core.gate.in_flight:
            # Nothing can run on released memory: what SGLang holds will not finish here.
            return False
        return await core.until_complete(self._left_s(self._times.finishing_s))

    async def _fail_requests(self) -> None:
        """Every request that is left gets the error on which the frontend goes on elsewhere."""
        gate = self._controller.core.gate
        gate.close()
        logger.warning("shutdown: failing %d requests as migratable", gate.in_flight)
        self._requests.fail_all()
        if not await self._completion.wait_streams(self._times.unanswered_s):
            # A scheduler that is stopped or stuck never answers an abort.
            self._requests.fail_all_without_engine()
            await self._completion.wait_streams(
                max(1.0, self._left_s(self._times.budget_s) - self._times.unanswered_s)
            )

    async def _leave(self, signum: int) -> None:
        times, steps = self._times, self._steps
        with self._watchdog.stage("deferred signal handlers", times.step_s + times.margin_s):
            await self._bounded("deferred signal handlers", steps.deferred_handlers(signum))
        with self._watchdog.stage("runtime shutdown", times.step_s + times.margin_s):
            steps.runtime_shutdown()
            await self._bounded("the runtime", steps.serving_ended())
        with self._watchdog.stage("engine shutdown", times.engine_s + times.margin_s):
            steps.engine_shutdown()

    async def _bounded(self, what: str, step: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._times.step_s):
                await step
        except asyncio.TimeoutError:
            logger.warning("shutdown: %s did not end within %g s", what, self._times.step_s)
        except Exception:
            logger.exception("shutdown: %s failed", what)
