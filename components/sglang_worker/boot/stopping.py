"""A graceful stop: withdraw, let the routing settle, finish what runs, end the rest."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from sglang_worker.boot.startup import Started
from sglang_worker.engine.signals import SignalOwner
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.workers.service import WorkerService

logger = logging.getLogger(__name__)

POLL_S = 0.02
# For the last errors to leave and the runtime to close its streams.
CLOSING_S = 5.0


class Stopper:
    def __init__(
        self,
        started: Started,
        runtime: Any,
        gate: AdmissionGate,
        service: WorkerService,
        signals: SignalOwner,
    ) -> None:
        self._settings = started.config.lifecycle
        self._engine = started.engine
        self._runtime = runtime
        self._gate = gate
        self._service = service
        self._signals = signals

    async def stop(self, signum: int) -> None:
        await self._withdraw()
        self._gate.close_at(time.monotonic() + self._settings.routing_grace_s)
        await asyncio.sleep(self._settings.routing_grace_s)
        self._gate.close()
        if not await self._until_idle(self._settings.shutdown_timeout_s):
            logger.warning("ending %d requests", self._gate.in_flight)
            self._service.requests.fail_all()
            await self._until_idle(CLOSING_S)
        await self._signals.run_deferred(signum)
        self._runtime.shutdown()
        try:
            await asyncio.wait_for(self._service.ended(), CLOSING_S)
        except Exception as error:
            logger.warning("serving did not end cleanly: %r", error)
        self._engine.shutdown()
        logger.info("stopped")

    async def _withdraw(self) -> None:
        try:
            await asyncio.wait_for(self._service.withdraw(), CLOSING_S)
        except Exception as error:
            logger.warning("could not withdraw from discovery: %r", error)

    async def _until_idle(self, timeout_s: float) -> bool:
        deadline_s = time.monotonic() + timeout_s
        while self._gate.in_flight:
            if time.monotonic() >= deadline_s:
                return False
            # Reading the id is the binding call that lets dropped generators finish.
            _ = self._service.worker_id
            await asyncio.sleep(POLL_S)
        return True
