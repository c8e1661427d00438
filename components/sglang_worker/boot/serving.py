"""The asynchronous half: runtime, endpoints, registration, and the wait for the end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal

from sglang_worker.boot.startup import Started
from sglang_worker.boot.stopping import Stopper
from sglang_worker.engine import compat, dynamo_compat
from sglang_worker.engine.death import Death
from sglang_worker.engine.signals import SignalOwner
from sglang_worker.errors import EngineDiedError
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.service import WorkerService
from sglang_worker.workers.table import worker_module

logger = logging.getLogger(__name__)

# After the engine died: time for the migratable errors of running requests to leave.
DEATH_GRACE_S = 2.0


class Serving:
    """One worker on one loop, from a running engine to a stopped process."""

    def __init__(self, started: Started, loop: asyncio.AbstractEventLoop) -> None:
        self._started = started
        self._loop = loop
        self._stop: asyncio.Future[int] = loop.create_future()
        self._death: asyncio.Future[Death] = loop.create_future()
        self._signals = SignalOwner(loop, self._on_signal, started.engine.report_failure)

    def _on_signal(self, signum: int) -> None:
        if self._stop.done():
            logger.warning("second signal: leaving at once")
            os._exit(128 + signum)
        logger.info("%s: stopping", signal.Signals(signum).name)
        self._stop.set_result(signum)

    def _on_death(self, death: Death) -> None:
        if not self._death.done():
            self._death.set_result(death)

    async def run(self) -> None:
        """Serve until a signal. Raises EngineDiedError when the engine ends first."""
        engine = self._started.engine
        self._signals.own()
        engine.watch_deaths(self._loop, self._on_death)
        compat.start_receiving(engine.tokenizer_manager)
        self._signals.own()
        dynamo_compat.answer_errors_quietly()
        runtime = dynamo_compat.create_runtime(self._started.config.runtime, self._loop)
        gate = AdmissionGate()
        service = worker_module(self._started.config.worker_type).build(
            WorkerContext(
                config=self._started.config,
                engine=engine,
                runtime=runtime,
                loop=self._loop,
                admission=gate,
            )
        )
        stopper = Stopper(self._started, runtime, gate, service, self._signals)
        serving = asyncio.ensure_future(self._serve(service))
        try:
            await asyncio.wait(
                (serving, self._stop, self._death), return_when=asyncio.FIRST_COMPLETED
            )
            if self._death.done():
                await self._engine_died(service, self._death.result())
            if self._stop.done():
                await stopper.stop(self._stop.result())
            else:
                serving.result()
        finally:
            serving.cancel()
            runtime.shutdown()

    async def _serve(self, service: WorkerService) -> None:
        await service.start_serving()
        await service.publish()
        # What lives as long as the worker need not be scanned for every request's garbage.
        gc.collect()
        gc.freeze()
        logger.info("serving as instance %d", service.worker_id)
        await service.ended()

    async def _engine_died(self, service: WorkerService, death: Death) -> None:
        """Hand running requests to other workers, then leave with the engine's exit code."""
        logger.error("the engine died: %s", death)
        service.requests.fail_all_without_engine()
        withdrawal = asyncio.ensure_future(service.withdraw())
        await asyncio.wait((withdrawal,), timeout=DEATH_GRACE_S)
        await asyncio.sleep(DEATH_GRACE_S if service.requests.live_generations else 0)
        raise EngineDiedError(f"the engine died: {death}")
