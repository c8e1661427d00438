from __future__ import annotations

from collections.abc import Sequence

import pytest
from sglang_worker.boot import engines
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    SystemSettings,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.errors import ConfigError, EngineStartError
from sglang_worker.runners import startup
from sglang_worker.runners.folder import ReportFolder
from sglang_worker.system.descriptor import RouteDescriptor
from sglang_worker.system.grammar import parse_descriptors
from sglang_worker.workers.table import ROWS


@pytest.fixture
def folder() -> ReportFolder:
    return startup.prepare({}, strict=True)


def test_a_missing_device_names_the_variable_of_the_cpu_platform(
    folder: ReportFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYN_SGL_REFERENCE_PLATFORM", "off")
    error = engines._explained(EngineStartError("No accelerator (CUDA, …) is available."), folder)
    assert "DYN_SGL_REFERENCE_PLATFORM is off" in str(error)


def test_another_failure_stays_as_it_is(folder: ReportFolder) -> None:
    error = EngineStartError("the weights are torn")
    assert engines._explained(error, folder) is error


def config(worker_type: WorkerType, routes: Sequence[RouteDescriptor]) -> WorkerConfig:
    return WorkerConfig(
        worker_type=worker_type,
        endpoint=EndpointAddress("dynamo", "backend", "generate"),
        engine=EngineFlags(),
        system=SystemSettings(routes=tuple(routes)),
    )


@pytest.mark.parametrize(
    "kind", [kind for kind, row in ROWS.items() if row.engine is not engines.EngineKind.SGLANG]
)
def test_engine_routes_are_refused_where_no_engine_has_methods(kind: WorkerType) -> None:
    routes = parse_descriptors(["flush=flush_cache"])
    with pytest.raises(ConfigError, match=f"--engine-route flush: a {kind.value} worker"):
        engines.start(config(kind, routes))
