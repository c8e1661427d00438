"""Image and video workers on a GPU: frontend, generations, cancellation, SIGTERM, bare generator.

    python -m benchmarks.gpu_diffusion --results FILE.json [--dry-run] [--seconds 270]

Wants SGLang with its image and video generator, diffusers and ai-dynamo importable, and
``components/sglang_worker/overlay`` and ``components`` first on PYTHONPATH, or the package
installed. Random weights in the shapes of Z-Image and Wan. ``--dry-run`` is the same on the CPU
with tiny ones. Writes FILE.json and FILE.md after every part; a part that fails says why and does
not keep the others from running. The exit code is 1 when one failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_media import bare, report
from benchmarks.gpu_media.cases import CASES, Case
from benchmarks.gpu_media.served import Served, start_workers
from tests.support.diffusion_models import write_models
from tests.support.stack import Stack

RUNS = 5
# What the bare generators still need before the time is up.
BARE_SECONDS = 75.0
# Nothing is begun in less.
LEAST_SECONDS = 20.0
NO_TIME = "no time was left"


class Clock:
    def __init__(self, seconds: float) -> None:
        self._until_s = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        return self._until_s - time.monotonic()


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--results", type=Path, required=True)
    flags.add_argument("--seconds", type=float, default=270.0)
    flags.add_argument("--kinds", default="image,video")
    flags.add_argument("--dry-run", action="store_true")
    options = flags.parse_args()
    clock = Clock(options.seconds)
    found: dict[str, Any] = {"machine": report.machine(), "rows": [], "faults": []}
    with tempfile.TemporaryDirectory(prefix="gpu-diffusion-") as scratch:
        models = attempt(
            found, "models", lambda: write_models(Path(scratch), size(options.dry_run))
        )
        if models is not None:
            kinds = [kind for kind in options.kinds.split(",") if kind in models]
            chosen = {kind: models[kind] for kind in kinds}
            # A stack that cannot be taken down must not cost the comparison.
            work = partial(serve, options, clock, found, Path(scratch), chosen)
            attempt(found, "workers", work)
            generate_bare(options, clock, found, Path(scratch), chosen)
        keep_logs(Path(scratch), options.results.parent)
    report.write(options.results, found)
    print(report.table(found), flush=True)
    for fault in found["faults"]:
        print(f"FAULT in {fault['part']}: {fault['error']}\n{fault['trace']}", flush=True)
    return 1 if found["faults"] else 0


def keep_logs(scratch: Path, folder: Path) -> None:
    for path in sorted([*(scratch / "stack" / "logs").glob("*.log"), *scratch.glob("bare-*.log")]):
        shutil.copy(path, folder / f"gpu_diffusion-{path.name}")


def size(dry_run: bool) -> str:
    return "tiny" if dry_run else "wide"


def serve(
    options: argparse.Namespace,
    clock: Clock,
    found: dict[str, Any],
    scratch: Path,
    models: dict[str, Path],
) -> None:
    # SGLang's own settings of this machine; the stack drops all others.
    kept = {key: value for key, value in os.environ.items() if key.startswith("SGLANG_")}
    with Stack(scratch / "stack", kept) as stack:
        served = attempt(
            found,
            "start",
            lambda: start_workers(stack, models, scratch, clock.left_s - BARE_SECONDS),
        )
        for worker in served or ():
            found["rows"] += worker.start_rows()
            if worker.fault is not None:
                found["faults"].append(worker.fault)
                continue
            for case in cases(worker.kind, options.dry_run):
                if clock.left_s < LEAST_SECONDS:
                    found["faults"].append(report.fault(case.name, NO_TIME, ""))
                    continue
                attempt(found, case.name, lambda c=case, w=worker: measure(found, w, c))
                report.write(options.results, found)
            attempt(found, f"{worker.kind}: cancel", lambda w=worker: note(found, w.cancel()))
            attempt(found, f"{worker.kind}: SIGTERM", lambda w=worker: note(found, w.stop()))
            report.write(options.results, found)


def generate_bare(
    options: argparse.Namespace,
    clock: Clock,
    found: dict[str, Any],
    scratch: Path,
    models: dict[str, Path],
) -> None:
    if clock.left_s < LEAST_SECONDS:
        found["faults"].append(report.fault("bare generators", NO_TIME, ""))
        return
    with ThreadPoolExecutor() as pool:
        for kind, model in models.items():
            work = partial(
                compare, found, kind, model, cases(kind, options.dry_run), scratch, clock
            )
            pool.submit(attempt, found, f"{kind}: bare", work)


def compare(
    found: dict[str, Any], kind: str, model: Path, wanted: list[Case], scratch: Path, clock: Clock
) -> None:
    rows, missing = bare.run(kind, model, wanted, RUNS, scratch, clock.left_s)
    found["rows"] += rows
    if missing is not None:
        raise RuntimeError(missing)


def cases(kind: str, dry_run: bool) -> list[Case]:
    return [case.small() if dry_run else case for case in CASES if case.kind == kind]


def measure(found: dict[str, Any], worker: Served, case: Case) -> None:
    note(found, worker.measure(case, RUNS))


def note(found: dict[str, Any], row: dict[str, Any]) -> None:
    found["rows"].append(row)
    print(row, flush=True)


def attempt(found: dict[str, Any], part: str, work: Any) -> Any:
    """What ``work`` returns; None, and a fault in the results, when it raises."""
    try:
        return work()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        found["faults"].append(report.fault(part, text[:3000], traceback.format_exc()[-2500:]))
        print(f"FAULT in {part}: {text[:600]}", flush=True)
        return None


if __name__ == "__main__":
    sys.exit(main())
