from __future__ import annotations

import asyncio

from sglang_worker.lifecycle.binding_nudge import INTERVAL_S, nudge_forever
from sglang_worker.lifecycle.gate import AdmissionGate


async def test_the_runtime_is_nudged_only_while_something_is_in_flight() -> None:
    gate = AdmissionGate()
    calls: list[int] = []
    nudging = asyncio.ensure_future(nudge_forever(gate, lambda: calls.append(1), 0.005))
    await asyncio.sleep(0.05)
    assert not calls
    with gate.admit():
        await asyncio.sleep(0.05)
    assert calls
    nudging.cancel()
    assert INTERVAL_S == 0.25
