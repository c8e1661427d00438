"""The synchronous half of a start: from the command line to a running, checked engine.

No thread and no event loop exists yet, so the engine's processes may be forked and a signal can
simply raise in the main thread. The listener comes first: its child answers probes while the
engine loads.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.boot import engines
from sglang_worker.boot.ending import ENDING
from sglang_worker.config import environment
from sglang_worker.config.libraries import check_libraries
from sglang_worker.config.parse import parse_system, parse_worker_config
from sglang_worker.config.quiet import held_logs
from sglang_worker.config.worker_config import SystemSettings, WorkerConfig
from sglang_worker.engine import compat_gateway
from sglang_worker.engine.owned import OwnedEngine
from sglang_worker.gateway.process import GatewayProcess, end_all, spawn_all
from sglang_worker.observability.logs import setup as logs
from sglang_worker.redaction import hide_in_logs, secret_values
from sglang_worker.runners.later import RunnerWatch
from sglang_worker.runners.report import RunnerReport, to_builtins
from sglang_worker.system import metadata_ports, phases
from sglang_worker.system.listener import SystemListener
from sglang_worker.system.outlet import StateOutlet
from sglang_worker.workers.table import check_routes

logger = logging.getLogger(__name__)


class InGateway(msgspec.Struct, frozen=True):
    """What a gateway has instead of a listener and runners of its own (docs/gateway-workers.md)."""

    index: int
    outlet: StateOutlet
    runners: list[dict[str, Any]] | None


class Started(msgspec.Struct, frozen=True):
    """``listener`` is None without a system port, ``runners`` without an `sgl.Engine`.
    ``gateways``: the processes that serve instead of this one."""

    config: WorkerConfig
    engine: OwnedEngine
    runners: RunnerWatch | None
    listener: SystemListener | None
    gateways: tuple[GatewayProcess, ...] = ()
    in_gateway: InGateway | None = None

    @property
    def outlet(self) -> StateOutlet | None:
        """Where this process tells how it is."""
        return self.listener if self.in_gateway is None else self.in_gateway.outlet

    def close(self) -> None:
        """End the engine's processes; the listener answers until the interpreter ends."""
        end_all(self.gateways)
        self.engine.shutdown()

    def shown_runners(self) -> list[dict[str, Any]] | None:
        """The list of DESIGN section 4 for the model card; None where no ModelRunner exists."""
        if self.in_gateway is not None:
            return self.in_gateway.runners
        return None if self.runners is None else to_builtins(self.runners.reports)

    def runner_reports(self) -> tuple[RunnerReport, ...]:
        """What the runners run, as last seen."""
        return () if self.runners is None else tuple(self.runners.reports)


def boot(argv: Sequence[str], environ: Mapping[str, str]) -> Started:
    """Open the listener, then everything else; leaves nothing behind when it raises."""
    ENDING.arm()
    with held_logs():
        listener = open_listener(parse_system(argv, environ))
    try:
        with held_logs():
            config = configure(argv, environ)
        return start(config, listener)
    except BaseException:
        if listener is not None:
            listener.close()
        raise


def open_listener(settings: SystemSettings) -> SystemListener | None:
    """Bind the public port and answer probes; None without a system port."""
    if settings.port is None:
        return None
    listener = SystemListener(settings)
    environment.export({phases.VARIABLE: listener.phase_socket})
    listener.start()
    ENDING.last = listener.close
    return listener


def configure(argv: Sequence[str], environ: Mapping[str, str]) -> WorkerConfig:
    """Everything that can be wrong before a model is opened; raises ConfigError."""
    environment.prepare(environ)
    config = parse_worker_config(argv, environ)
    check_routes(config)
    check_libraries(config)
    return config


def start(config: WorkerConfig, listener: SystemListener | None) -> Started:
    """Apply the environment, start the engine and check its runners."""
    environment.apply(config)
    for notice in config.notices:
        logger.warning("%s", notice)
    hide_in_logs(secret_values(config.engine.explicit))
    environment.export(logs.for_engine(os.environ, config.engine.explicit.get("log_level")))
    with metadata_ports.held(config):
        # They import while the engine starts, and before any thread of this process exists.
        gateways = spawn_all(config)
        try:
            if gateways:
                compat_gateway.require_attach()
            started = engines.start(config)
        except BaseException:
            end_all(gateways)
            raise
    logs.settle()
    return Started(config, started.engine, started.runners, listener, gateways)
