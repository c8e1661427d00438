"""The engine died while serving: leave discovery, hand the running requests on, exit with 71.

Five seconds is all there is: the operator's supervisor should restart the worker, and clients
should wait for another worker, not for this one.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from sglang_worker.lifecycle.completion import CompletionCheck
from sglang_worker.lifecycle.controller import LifecycleController
from sglang_worker.lifecycle.shutdown import RunningRequests

logger = logging.getLogger(__name__)


class DeathTimes(msgspec.Struct, frozen=True):
    """How long the withdrawal, and then the error chunks of the requests, may take."""

    withdraw_s: float = 1.0
    streams_s: float = 2.5


async def hand_over(
    controller: LifecycleController,
    completion: CompletionCheck,
    requests: RunningRequests,
    times: DeathTimes | None = None,
) -> None:
    """Returns within ``withdraw_s + streams_s``; the caller exits with the engine's code then.

    Running requests are failed at once: they must not wait for discovery. The gate closes at once
    too, since nothing that arrives can be served; arrivals are offered to another worker.
    """
    times = times or DeathTimes()
    requests.fail_all_without_engine()
    controller.core.gate.close()
    stopping = controller.stop_soon(engine_alive=False)
    # Not after the listener's acknowledgement, which `stop_soon` waits for: routers come first.
    controller.core.withdraw_soon()
    await asyncio.wait({stopping}, timeout=times.withdraw_s)
    if not stopping.done():
        logger.warning("discovery has not confirmed the withdrawal of the dead engine's worker")
    # A request that was admitted just before the gate closed may have started since.
    requests.fail_all_without_engine()
    if not await completion.wait_streams(times.streams_s):
        logger.warning("leaving although response streams have not ended")
