from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from sglang_worker.config.check import run_check
from sglang_worker.config.worker_config import WorkerType
from sglang_worker.workers.table import ROWS


@pytest.mark.parametrize("kind", list(WorkerType))
def test_every_type_has_a_module_that_builds_it(kind: WorkerType) -> None:
    assert callable(importlib.import_module(ROWS[kind].module).build)


def test_only_standalone_aggregated_workers_can_be_drained() -> None:
    drainable = {kind for kind, row in ROWS.items() if row.drainable}
    assert drainable == {WorkerType.AGGREGATED, WorkerType.NATIVE_MULTIMODAL}


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        (["--image-diffusion-worker"], 2),
        (["--video-generation-worker"], 2),
        (["--disaggregation-mode", "encode"], 2),
        ([], 0),
    ],
)
def test_engine_routes_are_refused_where_no_engine_has_methods(
    flags: list[str], code: int, tmp_path: Path
) -> None:
    argv = ["--model-path", str(tmp_path), *flags, "--engine-route", "flush=flush_cache"]
    plan, found = run_check(argv, {}, "static")
    assert found == code
    if code:
        (error,) = plan["errors"]
        assert error.startswith(
            f"--engine-route flush=flush_cache: a worker of type {plan['worker_type']} "
        )
