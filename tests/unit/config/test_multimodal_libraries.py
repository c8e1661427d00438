"""Flags that need NIXL say so before a model is loaded."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sglang_worker.config.libraries import check_libraries
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    ModelSettings,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.errors import ConfigError


def config(worker_type: WorkerType, mode: str = "nixl-write", **model: bool) -> WorkerConfig:
    plain = WorkerConfig(worker_type, EndpointAddress("n", "c", "e"), EngineFlags())
    return replace(plain, embedding_transfer_mode=mode, model=ModelSettings(**model))


def absent(name: str) -> None:
    """No package is installed."""


def test_handing_embeddings_over_through_nixl_needs_it() -> None:
    for worker_type in (WorkerType.MULTIMODAL_ENCODE, WorkerType.INTERNAL_MULTIMODAL):
        with pytest.raises(ConfigError, match=r"--embedding-transfer-mode nixl-read.*nixl"):
            check_libraries(config(worker_type, "nixl-read"), absent)
        check_libraries(config(worker_type, "local"), absent)


def test_pixels_of_the_frontend_need_it() -> None:
    with pytest.raises(ConfigError, match=r"--frontend-decoding.*nixl"):
        check_libraries(config(WorkerType.NATIVE_MULTIMODAL, frontend_decoding=True), absent)


def test_other_workers_do_not_need_it_and_with_it_all_may_start() -> None:
    check_libraries(config(WorkerType.AGGREGATED), absent)
    check_libraries(config(WorkerType.MULTIMODAL_ENCODE), lambda name: object())
