"""The same generations by SGLang's DiffGenerator alone, in a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gpu_media.cases import Case

MARK = "BARE "


def run(
    kind: str, model: Path, cases: list[Case], runs: int, scratch: Path, seconds: float
) -> list[dict[str, Any]]:
    """Rows for the table; raises with the end of its log when the process fails."""
    task = {"model": str(model), "cases": [msgspec.to_builtins(case) for case in cases]}
    task |= {"runs": runs, "output": str(scratch / "bare")}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_media.bare", json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    rows = [json.loads(line[len(MARK) :]) for line in done.stdout.splitlines() if MARK in line[:5]]
    if len(rows) != len(cases):
        raise RuntimeError(f"exit {done.returncode}: {(done.stdout + done.stderr)[-3000:]}")
    return rows


def main() -> None:
    from sglang.multimodal_gen import DiffGenerator
    from sglang.multimodal_gen.runtime import launch_server
    from sglang_worker.engine.compat_diffusion_process import run_unwatched

    # As in the worker: FlashInfer's rope may not build on the machine.
    patched: Any = launch_server
    patched.bootstrap_scheduler_process = run_unwatched
    task = json.loads(sys.argv[1])
    generator = DiffGenerator.from_pretrained(
        model_path=task["model"], num_gpus=1, attention_backend="torch_sdpa", sleep_on_idle=True
    )
    for case in msgspec.convert(task["cases"], list[Case]):
        fixed = {"output_path": task["output"], "save_output": True}
        made = generator.generate(sampling_params_kwargs=case.fields(99) | fixed)
        if made is None:
            raise RuntimeError(f"{case.name}: the generator gave nothing, see its log")
        took_s = []
        for seed in range(task["runs"]):
            began_s = time.monotonic()
            generator.generate(sampling_params_kwargs=case.fields(seed) | fixed)
            took_s.append(time.monotonic() - began_s)
        row = {
            "what": f"bare generator: {case.name}",
            "s": round(statistics.median(took_s), 3),
            "spread_s": [round(min(took_s), 3), round(max(took_s), 3)],
        }
        print(MARK + json.dumps(row), flush=True)
    generator.shutdown()


if __name__ == "__main__":
    main()
