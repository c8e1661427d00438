"""Truth of the runner report on a GPU: report against the kernels that the profiler recorded.

    python benchmarks/gpu_runner_truth.py --batch plain --results out/plain.json
    python benchmarks/gpu_runner_truth.py --merge out/*.json      # writes benchmarks/results/

Rows are six flag settings by three kinds of draft; a batch runs its rows side by side on one
device. `--dry-run` does the same on the CPU reference platform with tiny models and without the
linear-attention flags, which only proves the script.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
# Also run as a file, on machines where nothing is installed.
sys.path[:0] = [str(_ROOT), str(_ROOT / "components")]

from benchmarks.gpu_truth import (  # noqa: E402
    batch,
    condense,
    markdown,
    model,
    row,
    rows,
    verdict,
)

_RESULTS = _ROOT / "benchmarks" / "results"


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--batch", help="kinds of draft to run, with commas: plain,nextn,standalone")
    what.add_argument("--row", help="run one row in this process (what a batch starts)")
    what.add_argument("--merge", nargs="+", type=Path, help="result files to judge and write down")
    parser.add_argument("--only", help="of a batch, only these settings (with commas)")
    parser.add_argument("--results", type=Path, default=Path("gpu_runner_truth.part.json"))
    parser.add_argument("--folder", type=Path, help="scratch for models and logs")
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--row-timeout", type=float, default=300.0)
    parser.add_argument("--total", type=float, default=360.0, help="seconds for the whole batch")
    parser.add_argument("--side-by-side", type=int, default=6)
    parser.add_argument("--eager", action="store_true", help="no CUDA graphs at all")
    parser.add_argument("--dry-run", action="store_true")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    arguments = _parse(argv)
    if arguments.merge:
        return _merge(arguments.merge)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="gpu-truth-"))
    if arguments.row:
        return _row(arguments, folder)
    return _batch(arguments, folder)


def _row(arguments: argparse.Namespace, folder: Path) -> int:
    target, dense = folder / "models" / "target", folder / "models" / "dense"
    chosen = rows.row_named(arguments.row)
    run = row.RowRun(
        chosen,
        folder / f"{chosen.name}.json",
        index=arguments.index,
        dry_run=arguments.dry_run,
        eager=arguments.eager,
    )
    return run.run(target, dense)


def _batch(arguments: argparse.Namespace, folder: Path) -> int:
    model.write_models(folder / "models", dry_run=arguments.dry_run)
    chosen = rows.rows(arguments.batch.split(","))
    if arguments.only:
        chosen = [r for r in chosen if r.setting in arguments.only.split(",")]
    plan = batch.Plan(
        rows=chosen,
        folder=folder,
        row_timeout_s=arguments.row_timeout,
        total_s=arguments.total,
        side_by_side=arguments.side_by_side,
        dry_run=arguments.dry_run,
        eager=arguments.eager,
    )
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    results = batch.run_batch(plan, arguments.results)
    print(markdown.render(results))
    for result in results:
        print(json.dumps(verdict.judge(result)))
    return 0


def _merge(files: list[Path]) -> int:
    """Judges the raw results and writes the JSON and the table; 1 when a row disagrees."""
    found = {r["row"]: r for file in files for r in json.loads(file.read_text())}
    ordered = [found[r.name] for r in rows.rows(list(rows.DRAFTS)) if r.name in found]
    judged = [{**condense.condense(r), "judged": verdict.judge(r)} for r in ordered]
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / "gpu_runner_truth.json").write_text(json.dumps(judged, indent=1) + "\n")
    table = markdown.render(ordered)
    (_RESULTS / "gpu_runner_truth.md").write_text(table)
    print(table)
    wrong = [j["row"] for j in judged if j["judged"]["ran"] and not j["judged"]["agrees"]]
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
