"""The main process of a worker with gateways: it owns the engine and serves nobody itself."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from sglang_worker.boot.metrics import expose_host
from sglang_worker.boot.routes import attach_routes
from sglang_worker.boot.runtime import open_runtime
from sglang_worker.boot.serving import runtime_address
from sglang_worker.boot.startup import Started
from sglang_worker.engine import compat_gateway, compat_streams, dynamo_compat
from sglang_worker.engine.death import Death
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.engine.signals import SignalOwner
from sglang_worker.errors import EngineDiedError, ExitCode, WorkerError
from sglang_worker.gateway import wire
from sglang_worker.gateway.process import GatewayProcess, changed, own_variables
from sglang_worker.gateway.refusals import NoLifecycle
from sglang_worker.gateway.supervision import Do, Fleet, FleetTimes, Order
from sglang_worker.requests import ids
from sglang_worker.runners.report import to_builtins
from sglang_worker.system.state import GatewayState, Phase

logger = logging.getLogger(__name__)

TICK_S = 0.25
# For what comes after the last request; a gateway's own watchdog mostly ends it before.
STOP_MARGIN_S = 12.0
RUNNER_CHECK_INTERVAL_S = 30.0


def is_host(started: Started) -> bool:
    return bool(started.gateways)


class GatewayHost:
    """One worker with gateways on one loop, from a running engine to a stopped process."""

    def __init__(self, started: Started, loop: asyncio.AbstractEventLoop) -> None:
        self._started = started
        self._loop = loop
        self._engine = cast(WorkerEngine, started.engine)
        self._processes = started.gateways
        self._fleet = Fleet(
            len(self._processes),
            FleetTimes(stop_s=started.config.lifecycle.shutdown_timeout_s + STOP_MARGIN_S),
        )
        self._signals = SignalOwner(loop, self._on_signal, self._engine.report_failure)
        self._stopping = 0
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._ended = asyncio.Event()
        self._runtime: Any = None
        self._told: str | None = "starting"

    # --- events -----------------------------------------------------------------------------------

    def _on_signal(self, signum: int) -> None:
        if self._stopping:
            logger.warning("second signal: leaving at once")
            os._exit(128 + signum)
        self._stopping = signum
        logger.info("%s: stopping %d gateways", signal.Signals(signum).name, len(self._processes))
        self._carry_out(self._fleet.stop())

    def _on_death(self, death: Death) -> None:
        logger.error("the engine died: %s", death)
        self._carry_out(self._fleet.engine_died(str(death)))
        self._tell()

    def _on_exit(self, one: GatewayProcess, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        code = one.exit_code
        logger.log(
            logging.INFO if code == 0 else logging.ERROR,
            "gateway %d (pid %d) ended with code %s",
            one.index,
            one.pid,
            code,
        )
        self._carry_out(self._fleet.ended(one.index, 0 if code is None else code))
        self._tell()
        if self._fleet.done:
            self._ended.set()

    def _carry_out(self, orders: Sequence[Order]) -> None:
        for order in orders:
            one = self._processes[order.index]
            if order.do is Do.STOP:
                one.send(signal.SIGTERM)
            elif order.do is Do.KILL:
                logger.error("gateway %d did not end in its time: killing it", order.index)
                one.send(signal.SIGKILL)
            elif order.do is Do.TELL_DEATH:
                self._send_death(order.index)
            elif self._engine.death is None:
                compat_gateway.abort_by_prefix(
                    self._engine.tokenizer_manager, ids.gateway_mark(order.index)
                )

    def _send_death(self, index: int) -> None:
        death = self._engine.death or Death("an engine process", 0)
        if (writer := self._writers.get(index)) is not None:
            writer.write(wire.frame(wire.EngineDied(death.name, death.pid)))

    # --- life -------------------------------------------------------------------------------------

    async def run(self) -> ExitCode:
        """Until a signal. Raises EngineDiedError, or WorkerError for a gateway that was lost."""
        self._signals.own()
        self._engine.begin()
        self._signals.own()
        self._engine.watch_deaths(self._loop, self._on_death)
        runtime = self._runtime = open_runtime(self._started.config, self._loop)
        tasks: list[asyncio.Future[Any]] = []
        try:
            await self._prepare(runtime)
            tasks += [asyncio.ensure_future(self._hear(one)) for one in self._processes]
            tasks += [
                asyncio.ensure_future(self._tick()),
                asyncio.ensure_future(self._ask_schedulers()),
            ]
            await self._ended.wait()
            return await self._leave()
        finally:
            for task in tasks:
                task.cancel()
            self._publish(runtime_closed=True)
            dynamo_compat.shutdown(runtime)

    async def _prepare(self, runtime: Any) -> None:
        started, listener = self._started, self._started.listener
        for one in self._processes:
            descriptor = os.pidfd_open(one.pid)
            self._loop.add_reader(descriptor, self._on_exit, one, descriptor)
        table = None
        if listener is not None:
            if (address := runtime_address(runtime)) is not None:
                listener.set_runtime_address(*address)
            self._publish(phase=Phase.WARMING)
            table = await attach_routes(started, listener, NoLifecycle(), drainable=False)
        expose_host(started, runtime.endpoint(started.config.endpoint.path), table)

    async def _hear(self, one: GatewayProcess) -> None:
        """Hand the plan over, then take reports until the gateway ends."""
        reader, writer = await asyncio.open_connection(sock=one.pair)
        self._writers[one.index] = writer
        writer.write(wire.frame(self._plan(one)))
        while (content := await wire.read_frame(reader)) is not None:
            report = msgspec.json.decode(content, type=wire.Report)
            self._fleet.heard(one.index, report.state, report.held)
            self._tell()

    def _plan(self, one: GatewayProcess) -> wire.Plan:
        started = self._started
        return wire.Plan(
            index=one.index,
            owner_pid=os.getpid(),
            config=started.config,
            environ=changed(os.environ, one.environ, own_variables(started.config, one.index)),
            runners=to_builtins(started.runner_reports()),
            started_in_s=self._engine.started_in_s,
        )

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self._carry_out(self._fleet.tick())
            self._tell()

    async def _ask_schedulers(self) -> None:
        watch = self._started.runners
        while watch is not None:
            await asyncio.sleep(RUNNER_CHECK_INTERVAL_S)
            try:
                watch.note(await self._engine.control.internal_states())
            except Exception:
                logger.warning("the schedulers' runner reports could not be read", exc_info=True)

    # --- what it shows ----------------------------------------------------------------------------

    @property
    def fault(self) -> str | None:
        """Why the worker is not fit, in one sentence; None when it is."""
        watch = self._started.runners
        if watch is not None and not watch.healthy:
            return watch.changes[0].sentence
        return self._fleet.fault

    def _tell(self) -> None:
        fault, started = self.fault, self._fleet.started
        if fault != self._told and started and not self._stopping:
            logger.log(
                logging.INFO if fault is None else logging.ERROR,
                "healthy" if fault is None else "unhealthy: %s",
                *(() if fault is None else (fault,)),
            )
        if fault != self._told:
            dynamo_compat.set_health(self._runtime, fault is None)
        self._told = fault
        shown: dict[str, Any] = {"healthy": fault is None, "unhealthy_reason": fault}
        listener = self._started.listener
        if started and listener is not None and not listener.state.started:
            logger.info("serving through %d gateways", len(self._processes))
            shown.update(phase=Phase.REGISTERED, started=True)
        gateways = tuple(
            GatewayState(
                instance=one.state.worker_id,
                healthy=one.running and one.state.healthy,
                in_flight=one.held,
                runtime=one.state.runtime if one.running else None,
            )
            for one in self._fleet.gateways
        )
        shown["details"] = {
            "in_flight": sum(one.in_flight for one in gateways),
            "running_in_engine": sum(
                load.running for load in compat_streams.read_loads(self._engine.tokenizer_manager)
            ),
            "gateways": [
                {"worker_id": one.instance, "healthy": one.healthy, "in_flight": one.in_flight}
                for one in gateways
            ],
        }
        self._publish(**shown, gateways=gateways)

    def _publish(self, **changes: Any) -> None:
        listener = self._started.listener
        if listener is None:
            return
        now = listener.state
        if any(getattr(now, name) != value for name, value in changes.items()):
            listener.publish(**changes)

    async def _leave(self) -> ExitCode:
        code, why = self._fleet.outcome
        await self._signals.run_deferred(self._stopping or signal.SIGTERM)
        dynamo_compat.set_health(self._runtime, False)
        self._publish(healthy=False, unhealthy_reason=why)
        self._engine.shutdown()
        if code is ExitCode.STOPPED:
            return code
        if code is ExitCode.ENGINE_DIED:
            raise EngineDiedError(why)
        fault = WorkerError(why)
        fault.exit_code = code
        raise fault
