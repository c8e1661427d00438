"""``make bench``: every measurement that two cores can make in 20 minutes, one after the other.

Each prints its table and writes it under benchmarks/results; the pictures of docs/performance.md
are drawn anew at the end. What needs a GPU (``gpu_*.py``) or half an hour (``drain --long``) is
started by hand.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec

RESULTS = Path(__file__).parent / "results"


class Step(msgspec.Struct, frozen=True):
    """``shows``: the table of a module that only writes it."""

    module: str
    arguments: tuple[str, ...] = ()
    shows: str | None = None


STEPS = (
    Step("relay", ("--write",)),
    Step("serving", ("--write",)),
    Step("startup", ("--repeats", "5"), "startup.md"),
    Step("drain", ("--short",)),
    Step("metrics", ("--pairs", "15")),
    Step("memory", ("--seconds", "8")),
    Step("plots"),
)


def run(step: Step) -> int:
    print(f"== {step.module} {' '.join(step.arguments)}", flush=True)
    began_s = time.monotonic()
    command = [sys.executable, "-m", f"benchmarks.{step.module}", *step.arguments]
    code = subprocess.run(command, check=False).returncode
    if step.shows is not None and code == 0:
        print((RESULTS / step.shows).read_text(), flush=True)
    print(f"== {step.module}: exit {code} after {time.monotonic() - began_s:.0f} s", flush=True)
    return code


def main() -> int:
    began_s = time.monotonic()
    codes = {step.module: run(step) for step in STEPS}
    failed = [module for module, code in codes.items() if code]
    print(f"== all: {time.monotonic() - began_s:.0f} s, failed: {', '.join(failed) or 'none'}")
    return max(codes.values())


if __name__ == "__main__":
    sys.exit(main())
