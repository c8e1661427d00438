"""``--check``: everything that can be validated without starting anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from sglang_worker.config.model_rules import check_models
from sglang_worker.config.parity_check import check_parity
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.plan import base_plan, unknown
from sglang_worker.config.route_check import resolve_routes
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.errors import ConfigError, ExitCode

Level = Literal["static", "model"]


def run_check(
    argv: Sequence[str], environ: Mapping[str, str], level: Level
) -> tuple[dict[str, Any], int]:
    """The plan and the exit code: 0, or 2 with ``ok`` false and the sentence in ``errors``.

    Refusals of the CPU reference platform are not applied: a plan may be for another machine.
    """
    plan: dict[str, Any] = {"ok": False, "level": level}
    try:
        config = parse_worker_config(argv, environ)
        plan.update(base_plan(config))
        _check_routes(config)
        plan["system"]["routes"] = resolve_routes(config.system.routes)
        plan.update(_model(config) if level == "model" else _without_model())
    except ConfigError as error:
        return {**plan, "errors": [str(error)]}, int(ExitCode.CONFIGURATION)
    return {**plan, "ok": True, "errors": []}, int(ExitCode.STOPPED)


def _check_routes(config: WorkerConfig) -> None:
    from sglang_worker.workers import table

    table.check_routes(config)


def _without_model() -> dict[str, Any]:
    reason = "static reads no model; use --check=model"
    return {"model_files": unknown(reason), "loader_hook_parity": unknown(reason)}


def _model(config: WorkerConfig) -> dict[str, Any]:
    pair = check_models(config)
    return {
        "model_files": msgspec.to_builtins(pair),
        "loader_hook_parity": check_parity(pair, config.engine.explicit),
    }
