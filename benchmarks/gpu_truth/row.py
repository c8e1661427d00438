"""One row: starts one engine, collects the report, works it, and writes what it learned.

Runs as a process of its own. The result file is rewritten at every stage, so a row that is killed
still says how far it came.
"""

from __future__ import annotations

import json
import os
import platform
import random
import time
import traceback
from pathlib import Path
from typing import Any

from benchmarks.gpu_rows.options import engine_options
from benchmarks.gpu_rows.results import write_whole
from benchmarks.gpu_truth import probe
from benchmarks.gpu_truth.rows import Row

_PREFILL_PROMPTS, _PREFILL_TOKENS = 4, 700
_DECODE_PROMPTS, _DECODE_TOKENS = 4, 24
_VOCABULARY = 8000

_DEVICE_SIZES: dict[str, Any] = {
    "max_total_tokens": 40000,
    "max_running_requests": 8,
    "max_mamba_cache_size": 64,
    "context_length": 16384,
    "cuda_graph_max_bs_decode": 4,
}


class RowRun:
    def __init__(
        self, row: Row, output: Path, *, index: int, dry_run: bool, eager: bool = False
    ) -> None:
        self._row = row
        self._output = output
        self._index = index
        self._dry_run = dry_run
        self._eager = eager
        self._profile = output.with_suffix(".profile.json")
        self._began = time.monotonic()
        self._result: dict[str, Any] = {
            "row": row.name,
            "draft": row.draft,
            "setting": row.setting,
            "options": row.options,
            "eager": eager or dry_run,
            "stages_s": {},
        }

    def run(self, target: Path, dense: Path) -> int:
        self._stage("started")
        try:
            self._work(target, dense)
        except BaseException as error:
            self._result["error"] = f"{type(error).__name__}: {error}"
            self._result["traceback"] = traceback.format_exc()[-4000:]
            self._stage("failed")
            return 1
        self._stage("done")
        return 0

    def _work(self, target: Path, dense: Path) -> None:
        os.environ[probe.OUTPUT_VARIABLE] = str(self._profile)
        from sglang.srt.entrypoints.engine import Engine
        from sglang_worker.runners import startup
        from sglang_worker.runners.report import to_builtins

        self._stage("imported")
        folder = startup.prepare(os.environ, strict=True)

        class ProbedEngine(Engine):  # type: ignore[misc]
            run_scheduler_process_func = staticmethod(probe.run_scheduler_process)

        try:
            engine = ProbedEngine(**self._options(target, dense))
        except BaseException:
            self._result["refused"] = startup.reason_of_death(folder)
            raise
        try:
            self._stage("engine up")
            watch = startup.check(engine, engine.server_args, folder)
            self._result["report"] = to_builtins(watch.reports)
            self._result["versions"] = _versions()
            self._stage("reported")
            self._generate(engine)
            info = engine.get_server_info()
            changes = watch.note(info["internal_states"])
            self._result["changes"] = [change.sentence for change in changes]
            self._result["flags_shown"] = {k: v for k, v in info.items() if "linear_attn_" in k}
            self._stage("asked again")
        finally:
            engine.shutdown()

    def _options(self, target: Path, dense: Path) -> dict[str, Any]:
        row = dict(self._row.options)
        if self._row.draft == "standalone":
            row["speculative_draft_model_path"] = str(dense)
        if self._eager:
            row["disable_cuda_graph"] = True
        return engine_options(
            str(target),
            self._index,
            row,
            dry_run=self._dry_run,
            device=_DEVICE_SIZES,
            log_level="info",
        )

    def _generate(self, engine: Any) -> None:
        chance = random.Random(self._row.name)
        for _ in range(_PREFILL_PROMPTS):
            _answer(engine, chance, _PREFILL_TOKENS, new_tokens=1)
        self._stage("prefilled")
        for _ in range(_DECODE_PROMPTS):
            _answer(engine, chance, 40, new_tokens=_DECODE_TOKENS)
        self._stage("decoded")

    def _stage(self, name: str) -> None:
        self._result["stage"] = name
        self._result["stages_s"][name] = round(time.monotonic() - self._began, 1)
        if self._profile.exists():
            self._result["profile"] = json.loads(self._profile.read_text())
        write_whole(self._output, self._result)
        print(f"{self._row.name}: {name} after {self._result['stages_s'][name]} s", flush=True)


def _answer(engine: Any, chance: random.Random, tokens: int, *, new_tokens: int) -> None:
    engine.generate(
        input_ids=[chance.randrange(3, _VOCABULARY) for _ in range(tokens)],
        sampling_params={"max_new_tokens": new_tokens, "temperature": 0.0, "ignore_eos": True},
    )


def _versions() -> dict[str, str]:
    import sglang
    import torch

    versions = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sglang": sglang.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
    try:
        import flashinfer

        versions["flashinfer"] = flashinfer.__version__
    except ImportError:
        versions["flashinfer"] = "absent"
    return versions
