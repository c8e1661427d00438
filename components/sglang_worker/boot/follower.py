"""A later node of a multi-node engine: its ranks compute, the first node serves.

Registers no endpoint and no model. Shows its own metrics, relays the KV events of its ranks under
the leader's instance, answers probes, and leaves with the engine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from typing import Any, cast

from sglang_worker.boot.metrics import expose_follower
from sglang_worker.boot.nodes import Leader
from sglang_worker.boot.runtime import open_runtime
from sglang_worker.boot.serving import runtime_address
from sglang_worker.boot.startup import Started
from sglang_worker.engine import compat_ranks, dynamo_compat
from sglang_worker.engine.death import Death
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.engine.signals import SignalOwner
from sglang_worker.errors import EngineDiedError, ExitCode
from sglang_worker.runners.report import to_builtins
from sglang_worker.system.app import EngineRequest, EngineResponse
from sglang_worker.system.envelope import encode
from sglang_worker.system.state import Catalog, Phase
from sglang_worker.workers.background import stream_relays
from sglang_worker.workers.service import Background

logger = logging.getLogger(__name__)

LEADER_POLL_S = 0.5
LEADER_GONE_S = 10.0
"""A leader that is gone from discovery for so long will not end this node's ranks any more."""
LEADER_MARGIN_S = 2.0
"""How much longer than the leader's shutdown a follower keeps its ranks for it."""


def is_follower(started: Started) -> bool:
    """Whether SGLang's schedulers run here and its tokenizer manager on another node."""
    engine = started.engine
    if not isinstance(engine, WorkerEngine):
        return False
    return compat_ranks.node_rank(engine.engine.server_args) > 0


class Follower:
    """One node on one loop, from running ranks to a stopped process."""

    def __init__(self, started: Started, loop: asyncio.AbstractEventLoop) -> None:
        self._started = started
        self._loop = loop
        self._engine = cast(WorkerEngine, started.engine)
        self._stop: asyncio.Future[int] = loop.create_future()
        self._death: asyncio.Future[Death] = loop.create_future()
        self._signals = SignalOwner(loop, self._on_signal, self._engine.report_failure)
        self._leader: Leader | None = None
        self._relays: tuple[Background, ...] = ()

    def _on_signal(self, signum: int) -> None:
        if self._stop.done():
            logger.warning("second signal: leaving at once")
            os._exit(128 + signum)
        logger.info("%s: stopping", signal.Signals(signum).name)
        self._stop.set_result(signum)

    def _on_death(self, death: Death) -> None:
        if not self._death.done():
            self._death.set_result(death)

    async def run(self) -> ExitCode:
        """Follow until a signal or the engine's end. Raises EngineDiedError when it is a fault."""
        self._signals.own()
        self._engine.watch_deaths(self._loop, self._on_death)
        runtime = open_runtime(self._started.config, self._loop)
        following = asyncio.ensure_future(self._follow(runtime))
        try:
            ends: set[asyncio.Future[Any]] = {following, self._stop, self._death}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                following.result()
                logger.error("the leader has been gone for %g s", LEADER_GONE_S)
            return await self._leave(runtime)
        finally:
            following.cancel()
            for relay in self._relays:
                relay.stop()
            self._publish(runtime_closed=True)
            dynamo_compat.shutdown(runtime)

    async def _follow(self, runtime: Any) -> None:
        """Ends when the leader has been gone for so long that its ranks cannot be waited for."""
        started, listener = self._started, self._started.listener
        endpoint = runtime.endpoint(started.config.endpoint.path)
        if listener is not None:
            if (address := runtime_address(runtime)) is not None:
                listener.set_runtime_address(*address)
            await listener.attach(FollowerApp(started))
        expose_follower(started, endpoint)
        self._publish(phase=Phase.WAITING_FOR_PEERS)
        leader = self._leader = await Leader.find(
            started.config, self._engine, runtime, started.runners
        )
        self._relays = stream_relays(
            started.config, self._engine, endpoint, lambda: leader.worker_id
        )
        for relay in self._relays:
            await relay.start()
        dynamo_compat.set_health(runtime, True)
        self._publish(phase=Phase.FOLLOWING, started=True, healthy=True)
        logger.info("node follows instance %d", leader.worker_id)
        await self._until_left(leader)

    async def _until_left(self, leader: Leader) -> None:
        """A leader that ends takes the ranks with it, unless they hang in a collective."""
        seen_s = self._loop.time()
        while self._loop.time() - seen_s < LEADER_GONE_S:
            await asyncio.sleep(LEADER_POLL_S)
            if leader.listed:
                seen_s = self._loop.time()

    def _publish(self, **changes: Any) -> None:
        if self._started.listener is not None:
            self._started.listener.publish(**changes)

    async def _leave(self, runtime: Any) -> ExitCode:
        if not self._death.done() and self._leader is not None and self._leader.listed:
            # The leader's running requests need these ranks until it has stopped them itself.
            limit_s = self._started.config.lifecycle.shutdown_timeout_s + LEADER_MARGIN_S
            await asyncio.wait({self._death}, timeout=limit_s)
        dynamo_compat.set_health(runtime, False)
        fault = "stopping"
        if self._death.done():
            fault = f"the engine died: {self._death.result()}"
        elif not self._stop.done():
            fault = "the leader is gone"
        self._publish(healthy=False, unhealthy_reason=fault)
        self._engine.shutdown()
        if self._stop.done():
            return ExitCode.STOPPED
        if await self._leader_left():
            logger.info("the leader has left, and with it the engine: stopping (%s)", fault)
            return ExitCode.STOPPED
        raise EngineDiedError(fault)

    async def _leader_left(self) -> bool:
        """A leader that stops in order leaves discovery before it ends its ranks."""
        leader = self._leader
        if leader is None:
            return False
        for _ in range(int(LEADER_MARGIN_S / LEADER_POLL_S)):
            if not leader.listed:
                return True
            await asyncio.sleep(LEADER_POLL_S)
        return not leader.listed


class FollowerApp:
    """`system.app.EngineApp` without routes: everything is asked of the leader."""

    def __init__(self, started: Started) -> None:
        self._started = started

    def catalog(self) -> Catalog:
        return Catalog(
            runners=to_builtins(self._started.runner_reports()),
            model=self._started.config.model.served_model_names[0],
        )

    async def handle(self, request: EngineRequest) -> EngineResponse:
        body = encode({"error": "a follower node has no routes; ask the first node"})
        return EngineResponse(status=404, body=body, headers={"Content-Type": "application/json"})

    def refused(self, method: str, path: str, remote: str, status: int) -> None:
        logger.warning("refused %s %s from %s with %d", method, path, remote, status)
