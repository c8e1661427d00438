"""The asynchronous half: runtime, lifecycle, endpoints, routes, and the wait for the end."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any
from urllib.parse import urlsplit

from sglang_worker.boot import nodes
from sglang_worker.boot.collection import FullCollections
from sglang_worker.boot.health import HealthState
from sglang_worker.boot.metrics import expose_worker
from sglang_worker.boot.routes import attach_routes
from sglang_worker.boot.runtime import open_runtime
from sglang_worker.boot.startup import Started
from sglang_worker.engine import dynamo_compat, dynamo_compat_peers
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.engine.owned import NoControl
from sglang_worker.engine.signals import SignalOwner
from sglang_worker.errors import ExitCode
from sglang_worker.lifecycle import wiring
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.ports import StatePublisher
from sglang_worker.lifecycle.runtime_metrics import Address
from sglang_worker.lifecycle.shutdown import StopSteps
from sglang_worker.lifecycle.wiring import WorkerLifecycle
from sglang_worker.observability.metrics.gc_pauses import GC_PAUSES
from sglang_worker.system.publisher import ListenerPublisher
from sglang_worker.system.state import Phase
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.peers import peer_address
from sglang_worker.workers.service import WorkerService
from sglang_worker.workers.table import worker_module, worker_row

logger = logging.getLogger(__name__)


class Serving:
    """One worker on one loop, from a running engine to a stopped process."""

    def __init__(self, started: Started, loop: asyncio.AbstractEventLoop) -> None:
        self._started = started
        self._loop = loop
        self._early_signal: int | None = None
        self._collecting: asyncio.Future[None] | None = None
        self._lifecycle: WorkerLifecycle | None = None
        self._signals = SignalOwner(loop, self._on_signal, started.engine.report_failure)

    @property
    def drainable(self) -> bool:
        config = self._started.config
        return worker_row(config.worker_type).drainable and config.gateway_workers <= 1

    def _on_signal(self, signum: int) -> None:
        if self._lifecycle is not None:
            self._lifecycle.on_signal(signum)
        else:
            # Delivered as soon as there is a lifecycle that can stop in order.
            self._early_signal = signum

    def _details(self) -> dict[str, Any]:
        return {} if self._lifecycle is None else self._lifecycle.controller.details()

    def _probe_may_use_engine(self) -> bool:
        return self._lifecycle is None or self._lifecycle.controller.probe_may_use_engine

    async def run(self) -> ExitCode:
        """Serve until a signal. Raises EngineDiedError when the engine ends first."""
        started, engine = self._started, self._started.engine
        self._signals.own()
        engine.begin()
        self._signals.own()
        runtime = open_runtime(started.config, self._loop)
        try:
            return await self._run_with(runtime)
        finally:
            dynamo_compat.shutdown(runtime)

    async def _run_with(self, runtime: object) -> ExitCode:
        started = self._started
        await self._meet_other_nodes(runtime)
        gate = AdmissionGate()
        service = worker_module(started.config.worker_type).build(
            WorkerContext(
                config=started.config,
                engine=started.engine,
                runtime=runtime,
                loop=self._loop,
                admission=gate,
                runners=started.shown_runners(),
                probe_may_use_engine=self._probe_may_use_engine,
            )
        )
        health = HealthState(started, runtime, service, self._probe_may_use_engine)
        lifecycle = self._lifecycle = wiring.build(self._parts(runtime, service, health), gate)
        started.engine.watch_deaths(self._loop, lifecycle.on_death)
        if self._early_signal is not None:
            lifecycle.on_signal(self._early_signal)
        serving = asyncio.ensure_future(self._serve(runtime, service, lifecycle, health))
        stopped = asyncio.ensure_future(lifecycle.until_stopped())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not stopped.done():
                serving.result()
            return await stopped
        finally:
            health.stop()
            service.stop_background()
            if self._collecting is not None:
                self._collecting.cancel()
            for task in (serving, stopped):
                task.cancel()

    async def _meet_other_nodes(self, runtime: object) -> None:
        """Before the worker is built: the model card shows the ranks of all nodes."""
        engine, watch = self._started.engine, self._started.runners
        if not isinstance(engine, WorkerEngine) or watch is None or nodes.alone(engine):
            return
        if self._started.listener is not None:
            self._started.listener.publish(phase=Phase.WAITING_FOR_PEERS)
        await nodes.gather(
            self._started.config,
            engine,
            runtime,
            watch,
            lambda: self._early_signal is not None or engine.lost_process,
        )

    def _parts(self, runtime: object, service: WorkerService, health: HealthState) -> wiring.Parts:
        started = self._started
        address = runtime_address(runtime)
        publisher: StatePublisher = wiring.SilentPublisher()
        if started.listener is not None and self.drainable:
            publisher = ListenerPublisher(started.listener, self._details)
        if started.outlet is not None and address is not None:
            started.outlet.set_runtime_address(*address)

        def shut_runtime_down() -> None:
            if started.outlet is not None:
                started.outlet.publish(runtime_closed=True)
            dynamo_compat.shutdown(runtime)

        return wiring.Parts(
            settings=started.config.lifecycle,
            worker_id=service.worker_id,
            response_plane=started.config.runtime.response_plane,
            discovery=service,
            listed=lambda: service.main.listed,
            engine=started.engine.control or NoControl(),
            held_requests=lambda: len(started.engine.held_request_ids()),
            metrics_address=None if address is None else lambda: address,
            requests=service.requests,
            nudge=lambda: service.worker_id,
            stop_steps=StopSteps(
                deferred_handlers=self._signals.run_deferred,
                runtime_shutdown=shut_runtime_down,
                serving_ended=service.ended,
                engine_shutdown=started.engine.shutdown,
            ),
            publisher=publisher,
        )

    async def _serve(
        self,
        runtime: object,
        service: WorkerService,
        lifecycle: WorkerLifecycle,
        health: HealthState,
    ) -> None:
        outlet, listener = self._started.outlet, self._started.listener
        table = None
        if outlet is not None:
            outlet.publish(phase=Phase.WARMING, worker_id=str(service.worker_id))
        if listener is not None:
            table = await attach_routes(
                self._started,
                listener,
                lifecycle.controller,
                drainable=self.drainable,
                loras=service.loras,
            )
        await service.start_serving()
        expose_worker(self._started, service, lifecycle, table)
        await service.warm_up()
        # What lives as long as the worker need not be scanned for every request's garbage. The
        # scan takes half a second, so it comes before anybody routes here.
        gc.collect()
        gc.freeze()
        GC_PAUSES.install()
        collections = FullCollections(lambda: lifecycle.gate.in_flight)
        self._collecting = asyncio.ensure_future(collections.run())
        await service.publish()
        await lifecycle.start()
        health.start()
        logger.info("serving as instance %d", service.worker_id)
        useful = asyncio.ensure_future(self._until_useful(runtime))
        try:
            await service.ended()
        finally:
            useful.cancel()

    async def _until_useful(self, runtime: object) -> None:
        """Tell the listener that the start is over, once the peers are there that it needs."""
        outlet = self._started.outlet
        if outlet is None:
            return
        address = peer_address(self._started.config)
        if address is not None:
            outlet.publish(phase=Phase.WAITING_FOR_PEERS)
            await dynamo_compat_peers.until_listed(runtime, address)
        outlet.publish(phase=Phase.REGISTERED, started=True)


def runtime_address(runtime: object) -> Address | None:
    """Where the runtime's own server listens; None when it has none."""
    url = dynamo_compat.system_server_url(runtime)
    if url is None:
        return None
    parts = urlsplit(url)
    return (parts.hostname or "127.0.0.1", int(parts.port or 0))
