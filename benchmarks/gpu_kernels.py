"""Time of a hybrid GDN model per choice of linear-attention kernels, with and without a draft.

    python -m benchmarks.gpu_kernels --results FILE.json [--dry-run]
    python -m benchmarks.gpu_kernels --render FILE.json        # writes benchmarks/results/

Bare `sgl.Engine`s with this project's runner report, random weights, greedy, no prefix cache. All
rows start side by side and are timed one after the other. Prefill columns are the milliseconds of
the whole batch; decode columns the milliseconds per token of one sequence. Random weights make a
draft useless, so with speculation a decode column is about the cost of one draft-and-verify step:
divide it by the acceptance length that your draft reaches.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_rates import markdown
from benchmarks.gpu_rates.row import RowRun
from benchmarks.gpu_rates.rows import ROWS, Row, row_named
from benchmarks.gpu_rates.turns import Turn, wait_for
from benchmarks.gpu_truth.model import write_models

RESULTS = Path(__file__).parent / "results"
MEASURE_DEADLINE_S = 40.0


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--results", type=Path, default=Path("gpu_kernels.part.json"))
    flags.add_argument("--rows", help="only these, separated by semicolons")
    flags.add_argument("--repeats", type=int, default=7)
    flags.add_argument("--total", type=float, default=400.0, help="seconds for everything")
    flags.add_argument("--dry-run", action="store_true", help="tiny models on the CPU platform")
    flags.add_argument("--render", type=Path)
    flags.add_argument("--row", help="what a batch starts")
    flags.add_argument("--index", type=int, default=0)
    flags.add_argument("--folder", type=Path)
    flags.add_argument("--deadline", type=float, default=0.0)
    options = flags.parse_args(argv)
    if options.render:
        return _render(options.render)
    if options.row:
        run = RowRun(
            row_named(options.row),
            options.folder,
            options.index,
            dry_run=options.dry_run,
            repeats=options.repeats,
        )
        models = options.folder / "models"
        return run.run(models / "target", models / "dense", options.deadline)
    return _batch(options)


def _render(file: Path) -> int:
    found = json.loads(file.read_text())
    table = "\n".join([*found["head"], "", markdown.render(found["rows"])])
    (RESULTS / "gpu_kernels.md").write_text(table)
    (RESULTS / "gpu_kernels.json").write_text(json.dumps(found, indent=1) + "\n")
    print(table)
    return 0


def _batch(options: argparse.Namespace) -> int:
    chosen = [row_named(name) for name in options.rows.split(";")] if options.rows else list(ROWS)
    deadline_s = time.monotonic() + options.total
    with tempfile.TemporaryDirectory(prefix="gpu-kernels-") as scratch:
        folder = Path(scratch)
        write_models(folder / "models", dry_run=options.dry_run)
        children = [_start(row, index, folder, options) for index, row in enumerate(chosen)]
        try:
            _time_in_turn(children, folder, deadline_s)
        finally:
            for child in children:
                _end(child)
        results = [_collected(row, index, folder) for index, row in enumerate(chosen)]
    found = {"head": _head(options), "rows": results}
    options.results.write_text(json.dumps(found, indent=1))
    print(markdown.render(results), flush=True)
    for result in results:
        print(json.dumps({key: result.get(key) for key in ("row", "engine_up_s", "warm_s")}))
    return 1 if any("error" in result for result in results) else 0


def _start(
    row: Row, index: int, folder: Path, options: argparse.Namespace
) -> subprocess.Popen[bytes]:
    Turn(folder, index).clear()
    command = [sys.executable, "-m", "benchmarks.gpu_kernels", "--row", row.name]
    command += ["--index", str(index), "--folder", str(folder)]
    command += ["--repeats", str(options.repeats)]
    command += ["--deadline", str(time.monotonic() + options.total - 15)]
    command += ["--dry-run"] if options.dry_run else []
    with (folder / f"{index}.log").open("wb") as log:
        return subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def _time_in_turn(
    children: Sequence[subprocess.Popen[bytes]], folder: Path, deadline_s: float
) -> None:
    """Nobody is timed before every row has compiled or given up, and then alone: the idle
    processes of the others are stopped meanwhile."""

    def settled(index: int) -> bool:
        ended = children[index].poll() is not None
        return ended or Turn(folder, index).ready.exists() or _output(folder, index).exists()

    wait_for(
        lambda: all(settled(index) for index in range(len(children))),
        deadline_s - 0.4 * (deadline_s - time.monotonic()),
    )
    for child in children:
        _signal(child, signal.SIGSTOP)
    for index, child in enumerate(children):
        Turn(folder, index).go.touch()
        _signal(child, signal.SIGCONT)
        limit_s = min(deadline_s, time.monotonic() + MEASURE_DEADLINE_S)
        wait_for(
            lambda index=index, child=child: (  # type: ignore[misc]
                child.poll() is not None or _output(folder, index).exists()
            ),
            limit_s,
        )
        _end(child)
        print(f"row {index}: {deadline_s - time.monotonic():.0f} s left", flush=True)


def _output(folder: Path, index: int) -> Path:
    return folder / f"{index}.json"


def _signal(child: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Engines leave schedulers behind when they crash: the whole session goes."""
    _signal(child, signal.SIGKILL)
    child.wait()


def _collected(row: Row, index: int, folder: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(_output(folder, index).read_text())
    except (OSError, ValueError) as error:
        result = {"row": row.name, "error": f"no result was written: {error}"}
    if "error" in result:
        result["log_tail"] = (folder / f"{index}.log").read_text(errors="replace")[-3000:]
        print(result["row"], result["log_tail"], flush=True)
    return result


def _head(options: argparse.Namespace) -> list[str]:
    import sglang
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return [
        f"# Kernel choices on one {device}",
        "",
        f"`python -m benchmarks.gpu_kernels --repeats {options.repeats}`, "
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, SGLang {sglang.__version__}. Milliseconds, median (lowest to "
        f"highest) of {options.repeats}. Decode/prefill/verify: T Triton, F FlashInfer, C CuTe "
        "DSL. Prefill columns: the whole batch; decode columns: per token of one sequence, with a "
        "draft about one draft-and-verify step divided by the accepted length.",
    ]


if __name__ == "__main__":
    sys.exit(main())
