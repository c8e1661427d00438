"""Time of a hybrid GDN model per choice of linear-attention kernels, with and without a draft.

    python -m benchmarks.gpu_kernels --results FILE.json [--sets target,drafts] [--dry-run]
    python -m benchmarks.gpu_kernels --render FILE.json        # writes benchmarks/results/

Bare `sgl.Engine`s with this project's runner report, random weights, greedy, no prefix cache. Five
engines start side by side; they are then timed one at a time, in rounds. Prefill columns are the
milliseconds of the whole batch; decode columns the milliseconds per token of one sequence. Random
weights make a draft useless, so with speculation a decode column is about the cost of one
draft-and-verify step: divide it by the acceptance length that your draft reaches. The second table
sets the best single library against the best choice per phase. benchmarks/README.md: how to run it
on a GPU machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_rates import choices, markdown, waves
from benchmarks.gpu_rates.row import RowRun
from benchmarks.gpu_rates.rows import DEFAULT_SETS, SETS, Row, row_named
from benchmarks.gpu_rows import facts
from benchmarks.gpu_rows.results import write_whole
from benchmarks.gpu_truth.model import write_models

RESULTS = Path(__file__).parent / "results"
# A row's own end comes before the batch's, so that it can still say what happened.
ROW_MARGIN_S = 10.0
DRY_LEAST_S = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if options.render:
        return _render(options.render)
    if options.row:
        return _row(options)
    return _batch(options)


def _parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--results", type=Path, default=Path("gpu_kernels.part.json"))
    flags.add_argument("--sets", default=",".join(DEFAULT_SETS), help=f"of {', '.join(SETS)}")
    flags.add_argument("--rows", help="only these, separated by semicolons")
    flags.add_argument("--repeats", type=int, default=3, help="of every shape in every round")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--side-by-side", type=int, default=5)
    flags.add_argument("--total", type=float, default=460.0, help="seconds for everything")
    flags.add_argument("--size", choices=("wide", "device"), default="wide")
    flags.add_argument("--dry-run", action="store_true", help="tiny models on the CPU platform")
    flags.add_argument("--render", type=Path)
    flags.add_argument("--row", help="what a batch starts")
    flags.add_argument("--index", type=int, default=0)
    flags.add_argument("--folder", type=Path)
    flags.add_argument("--deadline", type=float, default=0.0)
    return flags


def _row(options: argparse.Namespace) -> int:
    run = RowRun(
        row_named(options.row),
        options.folder,
        options.index,
        dry_run=options.dry_run,
        repeats=options.repeats,
        rounds=options.rounds,
    )
    models = options.folder / "models"
    return run.run(models / "target", models / "dense", options.deadline)


def _render(file: Path) -> int:
    found = json.loads(file.read_text())
    text = "\n".join([*found["head"], "", _tables(found["rows"])])
    (RESULTS / "gpu_kernels.md").write_text(text)
    (RESULTS / "gpu_kernels.json").write_text(json.dumps(found, indent=1) + "\n")
    print(text)
    return 0


def _tables(rows: Sequence[dict[str, Any]]) -> str:
    compared = choices.render(rows)
    return "\n".join([markdown.render(rows), *([compared] if compared else [])])


def _batch(options: argparse.Namespace) -> int:
    groups = [_chosen(options)] if options.rows else [SETS[one] for one in options.sets.split(",")]
    # A set is never split over waves that another shares: its rows are compared with each other.
    rows = [wave for group in groups for wave in waves.split(group, options.side_by_side)]
    found: dict[str, Any] = {"head": _head(options), "rows": []}
    with tempfile.TemporaryDirectory(prefix="gpu-kernels-") as scratch:
        folder = Path(scratch)
        write_models(folder / "models", dry_run=options.dry_run, size=options.size)
        plan = waves.Plan(
            folder=folder,
            rounds=options.rounds,
            command=lambda row, index, end_s: _command(row, index, end_s, folder, options),
            least_s=DRY_LEAST_S if options.dry_run else waves.LEAST_S,
        )
        for result in waves.run(plan, rows, options.total):
            found["rows"].append(result)
            write_whole(options.results, found, indent=1)
    print(_tables(found["rows"]), flush=True)
    for result in found["rows"]:
        print(json.dumps({key: result.get(key) for key in ("row", "engine_up_s", "warm_s")}))
    return 1 if any("error" in result for result in found["rows"]) else 0


def _chosen(options: argparse.Namespace) -> list[Row]:
    return [row_named(name) for name in options.rows.split(";")]


def _command(
    row: Row, index: int, end_s: float, folder: Path, options: argparse.Namespace
) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.gpu_kernels", "--row", row.name]
    command += ["--index", str(index), "--folder", str(folder)]
    command += ["--repeats", str(options.repeats), "--rounds", str(options.rounds)]
    command += ["--deadline", str(end_s - ROW_MARGIN_S)]
    return command + (["--dry-run"] if options.dry_run else [])


def _head(options: argparse.Namespace) -> list[str]:
    return [
        f"# Kernel choices on one {facts.device_name()}",
        "",
        f"`python -m benchmarks.gpu_kernels --repeats {options.repeats} --rounds "
        f"{options.rounds} --size {options.size}`, {facts.versions()}. Milliseconds, median "
        f"(lowest to highest) of {options.repeats} in each of {options.rounds} rounds. "
        "Decode/prefill/verify: T Triton, F FlashInfer, C CuTe DSL. Prefill columns: the whole "
        "batch; decode columns: per token of one sequence, with a draft about one draft-and-verify "
        "step divided by the accepted length.",
    ]


if __name__ == "__main__":
    sys.exit(main())
