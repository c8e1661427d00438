"""One row, in a process of its own: an engine, its runner report, and the times of every shape."""

from __future__ import annotations

import json
import os
import time
import traceback
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gpu_rates import shapes
from benchmarks.gpu_rates.rows import Row
from benchmarks.gpu_rates.turns import Turn

_DEVICE_OPTIONS: dict[str, Any] = {
    "attention_backend": "triton",
    "dtype": "bfloat16",
    "mem_fraction_static": 0.8,
    "max_total_tokens": 160000,
    "max_running_requests": 128,
    "max_mamba_cache_size": 192,
    "context_length": 20000,
    "cuda_graph_max_bs_decode": 128,
    "cuda_graph_bs_decode": [1, 32, 128],
    "disable_prefill_cuda_graph": True,
    "sleep_on_idle": True,
}
_DRY_OPTIONS: dict[str, Any] = {
    "attention_backend": "triton",
    "device": "cpu",
    "dtype": "float32",
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 4096,
    "max_running_requests": 4,
    "max_mamba_cache_size": 16,
    "context_length": 1024,
}


class RowRun:
    def __init__(self, row: Row, folder: Path, index: int, *, dry_run: bool, repeats: int) -> None:
        self._row = row
        self._output = folder / f"{index}.json"
        self._turn = Turn(folder, index)
        self._index = index
        self._dry_run = dry_run
        self._repeats = repeats
        self._shapes = shapes.DRY_SHAPES if dry_run else shapes.DEVICE_SHAPES
        self._result: dict[str, Any] = {"row": row.name, "options": dict(row.options)}

    def run(self, target: Path, dense: Path, deadline_s: float) -> int:
        try:
            self._work(target, dense, deadline_s)
        except BaseException as error:
            self._result["error"] = f"{type(error).__name__}: {error}"[:600]
            self._result["traceback"] = traceback.format_exc()[-2500:]
            self._write()
        return 1 if "error" in self._result else 0

    def _write(self) -> None:
        """Whole or not at all: the batch goes on to the next row when it sees the file."""
        part = self._output.with_suffix(".part")
        part.write_text(json.dumps(self._result, default=str))
        part.replace(self._output)

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
            if not self._turn.take(deadline_s):
                raise TimeoutError("no turn came before the deadline")
            self._result["times"] = {
                shape.key: msgspec.to_builtins(shapes.measure(engine, shape, self._repeats))
                for shape in self._shapes
            }
            state = engine.get_server_info()["internal_states"][0]
            self._result["acceptance_length"] = state.get("avg_spec_accept_length")
            self._write()
        finally:
            engine.shutdown()

    def _options(self, target: Path, dense: Path) -> dict[str, Any]:
        options = {
            "model_path": str(target),
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "disable_radix_cache": True,
            "sampling_backend": "pytorch",
            "grammar_backend": "none",
            "log_level": "warning",
            "random_seed": 7,
            "port": 31000 + 50 * self._index,
            "nccl_port": 41000 + 50 * self._index,
            **(_DRY_OPTIONS if self._dry_run else _DEVICE_OPTIONS),
            **self._row.options,
        }
        if self._row.dense_draft:
            options["speculative_draft_model_path"] = str(dense)
        if self._dry_run:
            for flag in [name for name in options if name.startswith("linear_attn_")]:
                del options[flag]
            options.pop("speculative_draft_attention_backend", None)
        return options
