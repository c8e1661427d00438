"""Has everything left? One reading asks all sources; three clean readings in a row are a yes.

Cheap questions come first, so a poll while requests run costs a lock and nothing more. A source
that cannot answer is a reason of its own and never counts as finished.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.metrics_text import busy
from sglang_worker.lifecycle.states import Reason

logger = logging.getLogger(__name__)

CLEAN_READINGS = 3
POLL_S = 0.02


class CompletionProbes(msgspec.Struct, frozen=True):
    """Where the answers come from.

    ``runtime_metrics`` returns the runtime's Prometheus text, or is None where the runtime has no
    metrics server (no system port: then only shutdown asks, and the other sources decide).
    ``unsent_bytes`` and ``sglang_requests`` count; all three may raise, which means unavailable.
    """

    unsent_bytes: Callable[[], int]
    sglang_requests: Callable[[], int]
    runtime_metrics: Callable[[], Awaitable[str]] | None = None


class CompletionCheck:
    def __init__(self, gate: AdmissionGate, probes: CompletionProbes) -> None:
        self._gate = gate
        self._probes = probes
        self._unavailable: str | None = None

    async def read(self) -> Reason | None:
        """One reading: what is waited for, or None for clean. Never raises."""
        view = self._gate.view()
        if not view.closed or view.in_flight:
            return Reason.DYNAMO_INFLIGHT
        try:
            reason = await self._ask_sources()
        except Exception as error:
            # Whatever went wrong, nothing is known about completion; say so and ask again.
            self._report_once(f"{type(error).__name__}: {error}")
            return Reason.CHECK_UNAVAILABLE
        self._unavailable = None
        # A resume may have opened the gate while the sources answered.
        return reason if self._gate.view() == view else Reason.DYNAMO_INFLIGHT

    async def wait_streams(self, timeout_s: float) -> bool:
        """Wait for the response streams alone, whatever SGLang and the gate still count: for
        requests that were failed while the engine does not answer. False: not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_clean(self._read_streams, _ignore)
        except asyncio.TimeoutError:
            return False
        return True

    async def wait(self, on_reason: Callable[[Reason], None]) -> None:
        """Return after three clean readings in a row; report every other reading."""
        await self._until_clean(self.read, on_reason)

    async def _until_clean(
        self,
        read: Callable[[], Awaitable[Reason | None]],
        on_reason: Callable[[Reason], None],
    ) -> None:
        clean = 0
        while True:
            reason = await read()
            if reason is None:
                clean += 1
                if clean == CLEAN_READINGS:
                    return
            else:
                clean = 0
                on_reason(reason)
            await asyncio.sleep(POLL_S)

    async def _ask_sources(self) -> Reason | None:
        sglang_busy = self._probes.sglang_requests() > 0
        if await self._streams_busy():
            return Reason.DYNAMO_INFLIGHT
        return Reason.SGLANG_INFLIGHT if sglang_busy else None

    async def _streams_busy(self) -> bool:
        if self._probes.unsent_bytes():
            return True
        metrics = self._probes.runtime_metrics
        return metrics is not None and busy(await metrics()) > 0

    async def _read_streams(self) -> Reason | None:
        try:
            return Reason.DYNAMO_INFLIGHT if await self._streams_busy() else None
        except Exception as error:
            # As in `read`: unknown is not finished.
            self._report_once(f"{type(error).__name__}: {error}")
            return Reason.CHECK_UNAVAILABLE

    def _report_once(self, problem: str) -> None:
        if problem != self._unavailable:
            logger.warning("completion cannot be checked: %s", problem)
        self._unavailable = problem


def _ignore(reason: Reason) -> None:
    """For waits that nobody watches."""
