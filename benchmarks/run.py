"""``make bench``: every measurement that two cores can make in 20 minutes, one after the other.

    python -m benchmarks.run [--only relay,drain] [--smoke] [--total 1180]

Each step writes its table under benchmarks/results and is ended at its limit; the pictures of
docs/performance.md are drawn anew at the end, and all tables are printed once more. A step that
fails is named, the others run all the same, and the exit code is 1. ``--smoke`` gives every step
its shortest run, in minutes, and throws the results away: it shows that the scripts work.

What needs a GPU (``gpu_*.py``) or half an hour (``drain --long``) is started by hand; so are the
runs behind the committed tables of start, scrapes and embeddings, which repeat more
(benchmarks/README.md).
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.whole.running import Outcome, command, run
from benchmarks.whole.steps import STEPS, present

RESULTS = Path(__file__).parent / "results"
TOTAL_S = 1180.0


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    flags.add_argument("--only", help="these steps, with commas")
    flags.add_argument("--smoke", action="store_true", help="the shortest runs, nothing is kept")
    flags.add_argument("--total", type=float, default=TOTAL_S, help="seconds for everything")
    options = flags.parse_args(argv)
    names = options.only.split(",") if options.only else [step.module for step in STEPS]
    if unknown := set(names) - {step.module for step in STEPS}:
        flags.error(f"--only: no step {', '.join(sorted(unknown))}")
    steps = [
        step
        for step in present()
        if step.module in names and not (options.smoke and step.smoke is None)
    ]
    # Whoever cancels the run sends SIGTERM: it must not leave engines behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as scratch:
        results = RESULTS
        if options.smoke:
            results = Path(scratch.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        began_s = time.monotonic()
        outcomes = run(steps, options.total, lambda step: command(step, results, options.smoke))
        print(report(outcomes, results, time.monotonic() - began_s), flush=True)
    return 1 if any(one.fault for one in outcomes) else 0


def report(outcomes: Sequence[Outcome], results: Path, seconds: float) -> str:
    """Every new table, then a line per step, then which failed."""
    lines = []
    for one in outcomes:
        if one.step.table is not None and one.fault is None:
            lines += [(results / one.step.table).read_text().rstrip(), ""]
    for one in outcomes:
        lines.append(f"== {one.step.module}: {one.fault or 'done'} ({one.seconds:.0f} s)")
    failed = [one.step.module for one in outcomes if one.fault]
    lines.append(f"== all: {seconds:.0f} s, failed: {', '.join(failed) or 'none'}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
