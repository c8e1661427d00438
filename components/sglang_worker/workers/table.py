"""From worker type to the module that serves it and the engine that it needs."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from enum import Enum
from typing import Protocol, cast

import msgspec

from sglang_worker.config.worker_config import WorkerConfig, WorkerType
from sglang_worker.errors import ConfigError
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.service import WorkerService


class EngineKind(str, Enum):
    """What runs the model; `boot.engines` starts it."""

    SGLANG = "sglang"  # sgl.Engine: schedulers and a tokenizer manager
    ENCODER = "encoder"  # SGLang's vision encoder alone
    DIFFUSION = "diffusion"  # SGLang's DiffGenerator


class WorkerRow(msgspec.Struct, frozen=True):
    """``drainable``: has drain, status and resume (DESIGN section 6: standalone aggregated)."""

    module: str
    engine: EngineKind = EngineKind.SGLANG
    drainable: bool = False


ROWS: Mapping[WorkerType, WorkerRow] = {
    WorkerType.AGGREGATED: WorkerRow("sglang_worker.workers.decode", drainable=True),
    WorkerType.PREFILL: WorkerRow("sglang_worker.workers.prefill"),
    WorkerType.DECODE: WorkerRow("sglang_worker.workers.disaggregated_decode"),
    WorkerType.EMBEDDING: WorkerRow("sglang_worker.workers.embedding"),
    WorkerType.LLM_DIFFUSION: WorkerRow("sglang_worker.workers.llm_diffusion"),
    WorkerType.NATIVE_MULTIMODAL: WorkerRow(
        "sglang_worker.workers.multimodal_native", drainable=True
    ),
    WorkerType.NATIVE_MULTIMODAL_PREFILL: WorkerRow("sglang_worker.workers.multimodal_native"),
    WorkerType.NATIVE_MULTIMODAL_DECODE: WorkerRow("sglang_worker.workers.multimodal_native"),
    WorkerType.MULTIMODAL_ENCODE: WorkerRow(
        "sglang_worker.workers.multimodal_encode", engine=EngineKind.ENCODER
    ),
    WorkerType.INTERNAL_MULTIMODAL: WorkerRow("sglang_worker.workers.multimodal_internal"),
    WorkerType.INTERNAL_MULTIMODAL_PREFILL: WorkerRow("sglang_worker.workers.multimodal_internal"),
    WorkerType.INTERNAL_MULTIMODAL_DECODE: WorkerRow("sglang_worker.workers.multimodal_internal"),
    WorkerType.IMAGE_DIFFUSION: WorkerRow(
        "sglang_worker.workers.image_diffusion", engine=EngineKind.DIFFUSION
    ),
    WorkerType.VIDEO_GENERATION: WorkerRow(
        "sglang_worker.workers.video_generation", engine=EngineKind.DIFFUSION
    ),
}


class WorkerModule(Protocol):
    def build(self, context: WorkerContext) -> WorkerService:
        """Everything that can serve, with nothing served yet."""


def worker_row(worker_type: WorkerType) -> WorkerRow:
    return ROWS[worker_type]


def check_routes(config: WorkerConfig) -> None:
    """Raises ConfigError for ``--engine-route`` where there is no engine to call."""
    routes, kind = config.system.routes, config.worker_type
    if routes and worker_row(kind).engine is not EngineKind.SGLANG:
        raise ConfigError(
            f"--engine-route {routes[0].text}: a worker of type {kind.value} runs no sgl.Engine "
            "whose methods could be exposed"
        )


def worker_module(worker_type: WorkerType) -> WorkerModule:
    return cast(WorkerModule, importlib.import_module(worker_row(worker_type).module))
