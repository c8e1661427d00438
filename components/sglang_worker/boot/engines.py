"""Starts the engine that a worker type needs, and checks what it runs."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sglang_worker.config import environment, platform
from sglang_worker.config.dump import dump_config
from sglang_worker.config.server_args import build_server_args
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import bootstrap, rendezvous, signals
from sglang_worker.engine.launch import WorkerEngine, start_engine
from sglang_worker.engine.owned import OwnedEngine
from sglang_worker.errors import EngineStartError
from sglang_worker.runners import startup as runners
from sglang_worker.runners.folder import ReportFolder
from sglang_worker.runners.later import RunnerWatch
from sglang_worker.system.sglang_classes import resolve_configured
from sglang_worker.workers.table import EngineKind, worker_row

logger = logging.getLogger(__name__)

# How SGLang's device probe begins (0.5.23 `utils.get_device`).
NO_DEVICE = "No accelerator"


class StartedEngine(msgspec.Struct, frozen=True):
    """``runners`` is None where no SGLang ModelRunner exists."""

    engine: OwnedEngine
    runners: RunnerWatch | None


def start(config: WorkerConfig) -> StartedEngine:
    """Raises ConfigError before anything is started, EngineStartError after."""
    signals.EARLY.raise_requested()
    started = STARTERS[worker_row(config.worker_type).engine](config)
    logger.info("engine ready in %.1f s", started.engine.started_in_s)
    return started


def _start_sglang(config: WorkerConfig) -> StartedEngine:
    server_args = build_server_args(config)
    dump_config(config, server_args)
    runners.refuse(server_args)
    resolve_configured(config.system.routes)
    bootstrap.require_free_port(server_args)
    engine, folder = _start_reporting(config, server_args)
    try:
        watch = runners.check(engine.engine, server_args, folder)
    except BaseException:
        engine.shutdown()
        raise
    return StartedEngine(engine, watch)


def _start_reporting(config: WorkerConfig, server_args: Any) -> tuple[WorkerEngine, ReportFolder]:
    exported: dict[str, str] = {}
    folder = runners.prepare(exported, strict=config.runner_report_strict)
    environment.export(exported)
    try:
        with rendezvous.held(server_args):
            engine = start_engine(config, server_args, prefer_fork=platform.is_active(os.environ))
    except EngineStartError as error:
        raise _explained(error, folder) from error
    return engine, folder


def _explained(error: EngineStartError, folder: ReportFolder) -> EngineStartError:
    """Schedulers that gave up because of a check left their reason in the report folder; of a
    missing device SGLang does not know what else could have run here."""
    reason = runners.reason_of_death(folder)
    if reason is None and NO_DEVICE in str(error):
        reason = platform.why_inactive(os.environ)
    return error if reason is None else EngineStartError(f"{error}: {reason}")


def _start_other(module: str) -> Callable[[WorkerConfig], StartedEngine]:
    def start_module(config: WorkerConfig) -> StartedEngine:
        engine: OwnedEngine = importlib.import_module(module).start(config)
        return StartedEngine(engine, None)

    return start_module


STARTERS: Mapping[EngineKind, Callable[[WorkerConfig], StartedEngine]] = {
    EngineKind.SGLANG: _start_sglang,
    EngineKind.ENCODER: _start_other("sglang_worker.engine.encoder"),
    EngineKind.DIFFUSION: _start_other("sglang_worker.engine.diffusion"),
}
