"""Runs rows side by side, each in a process group of its own with its own deadline."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_rows.processes import RowProcess
from benchmarks.gpu_rows.results import read_row, write_whole
from benchmarks.gpu_truth.rows import Row

_TAIL_BYTES = 6000
# Without these, CUPTI may lose the kernels of CUDA graphs that were captured before a profile.
_PROFILER_ENVIRONMENT = {"DISABLE_CUPTI_LAZY_REINIT": "1", "TEARDOWN_CUPTI": "0"}
_SCRIPT = Path(__file__).resolve().parent.parent / "gpu_runner_truth.py"


@dataclass(frozen=True)
class Plan:
    rows: list[Row]
    folder: Path
    row_timeout_s: float
    total_s: float
    side_by_side: int
    dry_run: bool
    eager: bool = False


def run_batch(plan: Plan, results: Path) -> list[dict[str, Any]]:
    """Every row's result; `results` is rewritten whenever a row ends."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + plan.total_s
    finished: dict[str, dict[str, Any]] = {}

    def one(numbered: tuple[int, Row]) -> None:
        index, row = numbered
        finished[row.name] = _run_row(plan, row, index, deadline)
        done = [finished[r.name] for r in plan.rows if r.name in finished]
        write_whole(results, done, indent=1, label=str(index))

    with ThreadPoolExecutor(plan.side_by_side) as pool:
        for _ in pool.map(one, enumerate(plan.rows)):
            pass
    return [finished[row.name] for row in plan.rows]


def _run_row(plan: Plan, row: Row, index: int, deadline: float) -> dict[str, Any]:
    output, log = plan.folder / f"{row.name}.json", plan.folder / f"{row.name}.log"
    for stale in (output, output.with_suffix(".profile.json")):
        stale.unlink(missing_ok=True)
    limit = min(plan.row_timeout_s, deadline - time.monotonic())
    if limit <= 0:
        return {"row": row.name, "error": "not started: the batch's time was used up"}
    command = [sys.executable, str(_SCRIPT), "--row", row.name, "--index", str(index)]
    command += ["--folder", str(plan.folder)] + (["--dry-run"] if plan.dry_run else [])
    command += ["--eager"] if plan.eager else []
    code = RowProcess(command, log, _PROFILER_ENVIRONMENT).wait(limit)
    return _collected(row, output, log, code)


def _collected(row: Row, output: Path, log: Path, code: int | str) -> dict[str, Any]:
    result = read_row(row.name, output)
    profile = output.with_suffix(".profile.json")
    if profile.exists():
        result["profile"] = json.loads(profile.read_text())
    result["exit"] = code
    if result.get("stage") != "done":
        result.setdefault("error", f"ended at stage {result.get('stage')} with {code}")
        result["log_tail"] = log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    return result
