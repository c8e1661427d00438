"""One row, in a process of its own: an engine, its runner report, and the times of every shape."""

from __future__ import annotations

import os
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu_rates import shapes
from benchmarks.gpu_rates.rows import Row
from benchmarks.gpu_rates.turns import Turn
from benchmarks.gpu_rows.options import engine_options
from benchmarks.gpu_rows.results import write_whole

_SIZES: dict[str, Any] = {
    "max_total_tokens": 160000,
    "context_length": 20000,
    "sleep_on_idle": True,
}
_TARGET_SIZES: dict[str, Any] = {
    **_SIZES,
    "max_running_requests": 128,
    "max_mamba_cache_size": 160,
    "cuda_graph_max_bs_decode": 128,
    "cuda_graph_bs_decode": [1, 32, 128],
}
_DRAFT_SIZES: dict[str, Any] = {
    **_SIZES,
    "max_running_requests": 32,
    "max_mamba_cache_size": 64,
    "cuda_graph_max_bs_decode": 32,
    "cuda_graph_bs_decode": [1, 32],
}


class RowRun:
    def __init__(
        self, row: Row, folder: Path, index: int, *, dry_run: bool, repeats: int, rounds: int
    ) -> None:
        self._row = row
        self._output = folder / f"{index}.json"
        self._turn = Turn(folder, index)
        self._index = index
        self._dry_run = dry_run
        self._repeats = repeats
        self._rounds = rounds
        self._shapes = shapes.DRY_SHAPES if dry_run else row.shapes
        self._times: dict[str, list[tuple[float, ...]]] = {}
        self._result: dict[str, Any] = {
            "row": row.name,
            "kind": row.kind,
            "options": dict(row.options),
        }

    def run(self, target: Path, dense: Path, deadline_s: float) -> int:
        try:
            self._work(target, dense, deadline_s)
        except BaseException as error:
            self._result["error"] = f"{type(error).__name__}: {error}"[:600]
            self._result["traceback"] = traceback.format_exc()[-2500:]
            write_whole(self._output, self._result)
        return 1 if "error" in self._result else 0

    def _work(self, target: Path, dense: Path, deadline_s: float) -> None:
        from sglang.srt.entrypoints.engine import Engine
        from sglang_worker.engine import scheduler_process
        from sglang_worker.runners import startup
        from sglang_worker.runners.report import to_builtins

        folder = startup.prepare(os.environ, strict=True)

        class ReportingEngine(Engine):  # type: ignore[misc]
            run_scheduler_process_func = staticmethod(scheduler_process.run_scheduler_process)

        began_s = time.monotonic()
        engine = ReportingEngine(**self._options(target, dense))
        try:
            self._result["engine_up_s"] = round(time.monotonic() - began_s, 1)
            self._result["report"] = to_builtins(
                startup.check(engine, engine.server_args, folder).reports
            )
            for shape in self._shapes:
                shapes.measure(engine, shape, 1)
            self._result["warm_s"] = round(time.monotonic() - began_s, 1)
            for number in range(self._rounds):
                if not self._turn.take(number, deadline_s):
                    raise TimeoutError(f"no turn of round {number} came before the deadline")
                self._round(engine, number)
                self._turn.done(number).touch()
        finally:
            engine.shutdown()

    def _round(self, engine: Any, number: int) -> None:
        """Written after every round: a row that is ended later still has something to show."""
        for shape in self._shapes:
            taken = shapes.measure(engine, shape, self._repeats, seed=number)
            self._times.setdefault(shape.key, []).append(tuple(taken))
        self._result["times"] = {
            key: shapes.Timing(tuple(rounds)).record() for key, rounds in self._times.items()
        }
        state = engine.get_server_info()["internal_states"][0]
        self._result["acceptance_length"] = state.get("avg_spec_accept_length")
        write_whole(self._output, self._result)

    def _options(self, target: Path, dense: Path) -> dict[str, Any]:
        row = dict(self._row.options)
        if self._row.dense_draft:
            row["speculative_draft_model_path"] = str(dense)
        return engine_options(
            str(target),
            self._index,
            row,
            dry_run=self._dry_run,
            device=_DRAFT_SIZES if self._row.drafts else _TARGET_SIZES,
            disable_radix_cache=True,
            log_level="warning",
        )
