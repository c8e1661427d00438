"""A cheap call into the runtime while anything is in flight.

When the runtime drops a generator (its client went away), Python learns of it at the next call
from Rust into Python, which on an otherwise idle worker may be many seconds off (FACTS section 3).
Calling any binding releases it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sglang_worker.lifecycle.gate import AdmissionGate

INTERVAL_S = 0.25


async def nudge_forever(
    gate: AdmissionGate, call: Callable[[], object], interval_s: float = INTERVAL_S
) -> None:
    """Run until cancelled; ``call`` is cheap and never raises (`Endpoint.connection_id`)."""
    while True:
        await asyncio.sleep(interval_s)
        if gate.in_flight:
            call()
