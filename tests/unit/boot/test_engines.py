from __future__ import annotations

import pytest
from sglang_worker.boot import engines
from sglang_worker.errors import EngineStartError
from sglang_worker.runners import startup
from sglang_worker.runners.folder import ReportFolder


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
