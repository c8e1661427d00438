"""From worker type to the module that serves it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, cast

from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.service import WorkerService

MODULES: Mapping[WorkerType, str] = {
    WorkerType.AGGREGATED: "sglang_worker.workers.decode",
}


class WorkerModule(Protocol):
    def build(self, context: WorkerContext) -> WorkerService:
        """Everything that can serve, with nothing served yet."""


def is_served(worker_type: WorkerType) -> bool:
    return worker_type in MODULES


def check_served(worker_type: WorkerType) -> None:
    """Raises ConfigError before any model is loaded."""
    if not is_served(worker_type):
        known = ", ".join(sorted(kind.value for kind in MODULES))
        raise ConfigError(
            f"worker type {worker_type.value} is not served by this release; served: {known}"
        )


def worker_module(worker_type: WorkerType) -> WorkerModule:
    check_served(worker_type)
    return cast(WorkerModule, importlib.import_module(MODULES[worker_type]))
