"""The same generations by SGLang's DiffGenerator alone, in a process of its own.

Several load side by side and generate one after the other: loading leaves the GPU idle.
"""

from __future__ import annotations

import fcntl
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gpu_media.cases import Case
from benchmarks.gpu_rows.processes import RowProcess

# SGLang looks for free ports upwards from these: two that start at once would find the same.
PORTS = {
    "image": {"port": 31100, "scheduler_port": 31200, "master_port": 31300},
    "video": {"port": 31500, "scheduler_port": 31600, "master_port": 31700},
}
LOG_BYTES = 3000


def run(
    kind: str, model: Path, cases: list[Case], runs: int, scratch: Path, seconds: float
) -> tuple[list[dict[str, Any]], str | None]:
    """Rows for the table; and, when some are missing, how the process ended with its log's end."""
    rows = scratch / f"bare-{kind}.jsonl"
    task = {"model": str(model), "cases": [msgspec.to_builtins(case) for case in cases]}
    task |= {"runs": runs, "output": str(scratch / "bare"), "rows": str(rows)}
    task |= {"turn": str(scratch / "bare.turn"), "ports": PORTS[kind]}
    command = [sys.executable, "-m", "benchmarks.gpu_media.bare", json.dumps(task)]
    process = RowProcess(command, scratch / f"bare-{kind}.log")
    ended = process.wait(seconds)
    lines = rows.read_text().splitlines() if rows.exists() else []
    missing = None if len(lines) == len(cases) else f"exit {ended}: {process.log_tail(LOG_BYTES)}"
    return [json.loads(line) for line in lines], missing


def main() -> None:
    from sglang.multimodal_gen import DiffGenerator
    from sglang.multimodal_gen.runtime import launch_server
    from sglang_worker.engine.compat_diffusion_process import run_unwatched

    # As in the worker: FlashInfer's rope may not build on the machine.
    patched: Any = launch_server
    patched.bootstrap_scheduler_process = run_unwatched
    task = json.loads(sys.argv[1])
    generator = DiffGenerator.from_pretrained(
        model_path=task["model"],
        num_gpus=1,
        attention_backend="torch_sdpa",
        sleep_on_idle=True,
        **task["ports"],
    )
    with turn(Path(task["turn"])), Path(task["rows"]).open("w") as rows:
        for case in msgspec.convert(task["cases"], list[Case]):
            rows.write(json.dumps(measure(generator, case, task)) + "\n")
            rows.flush()
    generator.shutdown()


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """One holder at a time, among all processes."""
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def measure(generator: Any, case: Case, task: dict[str, Any]) -> dict[str, Any]:
    fixed = {"output_path": task["output"], "save_output": True}
    made = generator.generate(sampling_params_kwargs=case.fields(99) | fixed)
    if made is None:
        raise RuntimeError(f"{case.name}: the generator gave nothing, see its log")
    took_s = []
    for seed in range(task["runs"]):
        began_s = time.monotonic()
        generator.generate(sampling_params_kwargs=case.fields(seed) | fixed)
        took_s.append(time.monotonic() - began_s)
    return {
        "what": f"bare generator: {case.name}",
        "s": round(statistics.median(took_s), 3),
        "spread_s": [round(min(took_s), 3), round(max(took_s), 3)],
    }


if __name__ == "__main__":
    main()
