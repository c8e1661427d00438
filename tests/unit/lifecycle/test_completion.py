from __future__ import annotations

import asyncio

from sglang_worker.lifecycle import completion
from sglang_worker.lifecycle.completion import CompletionCheck, CompletionProbes
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.states import Reason

from tests.unit.lifecycle.fakes import IDLE_METRICS


class Sources:
    def __init__(self) -> None:
        self.gate = AdmissionGate()
        self.unsent = 0
        self.sglang = 0
        self.metrics: str | Exception = IDLE_METRICS
        self.readings = 0

    async def runtime_metrics(self) -> str:
        self.readings += 1
        if isinstance(self.metrics, Exception):
            raise self.metrics
        return self.metrics

    def check(self, with_metrics: bool = True) -> CompletionCheck:
        metrics = self.runtime_metrics if with_metrics else None
        probes = CompletionProbes(lambda: self.unsent, lambda: self.sglang, metrics)
        return CompletionCheck(self.gate, probes)


async def test_an_open_gate_is_never_complete() -> None:
    assert await Sources().check().read() is Reason.DYNAMO_INFLIGHT


async def test_an_admitted_request_is_waited_for_without_asking_anything_costly() -> None:
    sources = Sources()
    ticket = sources.gate.admit()
    sources.gate.close()
    assert await sources.check().read() is Reason.DYNAMO_INFLIGHT
    assert sources.readings == 0
    ticket.release()
    assert await sources.check().read() is None


async def test_each_source_names_its_reason() -> None:
    sources = Sources()
    sources.gate.close()
    check = sources.check()
    sources.unsent = 17
    assert await check.read() is Reason.DYNAMO_INFLIGHT
    sources.unsent, sources.sglang = 0, 1
    assert await check.read() is Reason.SGLANG_INFLIGHT
    sources.sglang = 0
    sources.metrics = IDLE_METRICS.replace("} 0", "} 1")
    assert await check.read() is Reason.DYNAMO_INFLIGHT
    sources.metrics = "dynamo_work_handler_queue_depth 0\n"
    assert await check.read() is Reason.CHECK_UNAVAILABLE
    sources.metrics = ConnectionRefusedError("the runtime's server is gone")
    assert await check.read() is Reason.CHECK_UNAVAILABLE
    sources.metrics = IDLE_METRICS
    assert await check.read() is None


async def test_without_a_metrics_server_the_other_sources_decide() -> None:
    sources = Sources()
    sources.gate.close()
    assert await sources.check(with_metrics=False).read() is None


async def test_a_gate_that_opened_during_the_reading_spoils_it() -> None:
    sources = Sources()
    sources.gate.close()

    async def opening() -> str:
        sources.gate.open()
        sources.gate.close()
        return IDLE_METRICS

    probes = CompletionProbes(lambda: 0, lambda: 0, opening)
    assert await CompletionCheck(sources.gate, probes).read() is Reason.DYNAMO_INFLIGHT


async def test_three_clean_readings_in_a_row_are_needed() -> None:
    sources = Sources()
    sources.gate.close()
    seen: list[Reason] = []
    values = iter([0, 0, 5, 0, 0, 0])
    used: list[int] = []

    def unsent() -> int:
        used.append(next(values))
        return used[-1]

    probes = CompletionProbes(unsent, lambda: 0, sources.runtime_metrics)
    await asyncio.wait_for(CompletionCheck(sources.gate, probes).wait(seen.append), 5)
    assert used == [0, 0, 5, 0, 0, 0]
    assert seen == [Reason.DYNAMO_INFLIGHT]
    assert completion.CLEAN_READINGS == 3 and completion.POLL_S == 0.02
