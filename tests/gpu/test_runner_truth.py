"""The runner report against the kernels that torch's profiler records on the device.

`benchmarks/gpu_runner_truth.py` runs the whole table; here two rows are enough to notice when a
report and its device part ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]

ROWS = ("plain.none", "nextn.verify-cutedsl")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    from benchmarks.gpu_truth import batch, model, rows, verdict

    folder = tmp_path_factory.mktemp("truth")
    model.write_models(folder / "models", dry_run=False)
    plan = batch.Plan(
        rows=[rows.row_named(name) for name in ROWS],
        folder=folder,
        row_timeout_s=400,
        total_s=450,
        side_by_side=len(ROWS),
        dry_run=False,
    )
    results = batch.run_batch(plan, Path(folder) / "results.json")
    return {result["row"]: verdict.judge(result) for result in results}


@pytest.mark.parametrize("row", ROWS)
def test_the_report_names_the_kernels_that_the_device_ran(
    judged: dict[str, dict[str, Any]], row: str
) -> None:
    found = judged[row]
    assert found["ran"], found["why"]
    assert found["agrees"], found["phases"]


def test_an_mtp_draft_runs_no_linear_attention_kernel(judged: dict[str, dict[str, Any]]) -> None:
    assert judged["nextn.verify-cutedsl"]["draft_backends"] == []
