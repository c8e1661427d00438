"""Runs the test stages one after the other and ends with one line for all of them.

Each stage is a pytest process of its own: what SGLang leaves in a process (patches, global server
arguments) must not reach the next stage. A stage whose tests keep one core busy is two processes,
side by side. A failing stage does not keep the others from running.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

REPOSITORY = Path(__file__).resolve().parents[1]
TESTS_FAILED = 1
NO_TESTS_COLLECTED = 5
SECOND_TRY_AT_MOST = 6
CLEAN_UP_S = 90
# Tells `tests.support.ports` which of two processes of a stage it is in.
LANE = "WORKER_TEST_LANE"


class Stage(msgspec.Struct, frozen=True):
    """``budget_s`` is a limit for a hung stage, not a goal. ``beside``: those of ``paths`` that a
    second process runs meanwhile."""

    name: str
    paths: tuple[str, ...]
    budget_s: float
    beside: tuple[str, ...] = ()


class Lane(msgspec.Struct, frozen=True):
    """One process of a stage. What it prints goes to ``output``, if that is given."""

    command: tuple[str, ...]
    report: Path
    output: Path | None = None


class Tally(msgspec.Struct, frozen=True):
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


# About half of the units by time; none of them starts a frontend or looks at the clock.
UNITS_BESIDE = tuple(
    f"tests/unit/{folder}"
    for folder in ("benchmarks", "config", "demo", "packaging", "reference_platform", "requests")
)
STAGES = (
    Stage("unit", ("tests/unit",), 1200, UNITS_BESIDE),
    Stage("engine", ("tests/engine",), 1800),
    Stage("e2e", ("tests/e2e",), 2700),
    Stage("k8s", ("tests/k8s",), 900),
)
LONG_STAGES = tuple(msgspec.structs.replace(stage, budget_s=7200) for stage in STAGES)
COMPAT_STAGES = (
    Stage("unit", ("tests/unit",), 1200, UNITS_BESIDE),
    Stage("engine", ("tests/engine",), 900),
    Stage("e2e", ("tests/e2e",), 900),
)


def tally(report: Path) -> Tally:
    """Counts of a JUnit file; a missing or broken one (pytest was ended) is one failure."""
    try:
        suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return Tally(failed=1)
    count = {
        key: sum(int(suite.get(key, 0)) for suite in suites)
        for key in ("tests", "failures", "errors", "skipped")
    }
    failed = count["failures"] + count["errors"]
    return Tally(count["tests"] - failed - count["skipped"], failed, count["skipped"])


def run_bounded(command: Sequence[str], budget_s: float) -> int | None:
    """The exit code, or None when the budget ran out; SIGINT first, so that fixtures clean up."""
    return run_beside([Lane(tuple(command), Path())], budget_s)[0]


def run_beside(lanes: Sequence[Lane], budget_s: float) -> list[int | None]:
    """The same for several side by side, which share the budget."""
    end_s = time.monotonic() + budget_s
    running: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as leaving:
        # Also on the way out of an interrupted run.
        leaving.callback(lambda: [end(one) for one in running if one.poll() is None])
        for number, lane in enumerate(lanes):
            out = leaving.enter_context(lane.output.open("wb")) if lane.output else None
            options: dict[str, Any] = {"stdout": out, "stderr": subprocess.STDOUT} if out else {}
            environ = os.environ | ({LANE: str(number)} if len(lanes) > 1 else {})
            options |= {"cwd": REPOSITORY, "env": environ, "preexec_fn": heed_interrupts}
            running.append(subprocess.Popen(lane.command, **options))
        return [code_of(one, end_s) for one in running]


def heed_interrupts() -> None:
    """A shell lets its background jobs, and so what they start, ignore SIGINT: fixtures would not
    be taken down at the end of a budget."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def code_of(process: subprocess.Popen[bytes], end_s: float) -> int | None:
    try:
        return process.wait(max(end_s - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return None


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(CLEAN_UP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_on_sigterm() -> None:
    """Whoever cancels a run sends SIGTERM: it has to end pytest by way of its fixtures."""
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def run_stage(stage: Stage, marks: str, extra: Sequence[str], reports: Path) -> tuple[Tally, int]:
    """Runs one stage in the foreground; returns its counts and pytest's worst exit code."""
    started_s = time.monotonic()
    print(f"== {stage.name} ==", flush=True)
    lanes = lanes_of(stage, marks, extra, reports)
    codes = run_beside(lanes, stage.budget_s)
    for lane in lanes:
        if lane.output is not None:
            print(lane.output.read_text(errors="replace"), flush=True)
    if set(codes) == {NO_TESTS_COLLECTED}:
        print(f"== {stage.name}: no test selected ==", flush=True)
        return Tally(), 0
    if None in codes:
        print(f"== {stage.name}: not done after {stage.budget_s:g} s, ended ==", flush=True)
    total, worst = Tally(), 0
    for lane, code in zip(lanes, codes, strict=True):
        counts, code = outcome(stage, lane, code)
        total, worst = total + counts, worst or code
    print(f"== {stage.name}: {total} in {time.monotonic() - started_s:.0f} s ==", flush=True)
    return total, worst


def lanes_of(stage: Stage, marks: str, extra: Sequence[str], reports: Path) -> list[Lane]:
    ignored = [f"--ignore={path}" for path in stage.beside]
    parts = [("", [*ignored, *stage.paths])]
    if stage.beside:
        parts.append(("-beside", list(stage.beside)))
    lanes = []
    for suffix, paths in parts:
        name = stage.name + suffix
        report = reports / f"{name}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--durations=15", "--durations-min=0.5"]
        command += ["-m", marks, f"--junitxml={report}", "-o", f"junit_suite_name={stage.name}"]
        # Each remembers its own failures. The plugin of schemathesis, which is run as a program
        # here, costs a second of imports.
        command += ["-o", f"cache_dir=.pytest_cache/{name}", "-p", "no:schemathesis", *extra]
        command += paths
        lanes.append(Lane(tuple(command), report, reports / f"{name}.log" if suffix else None))
    return lanes


def outcome(stage: Stage, lane: Lane, code: int | None) -> tuple[Tally, int]:
    """Counts and exit code of a process that has ended, after a second try for what failed."""
    if code is None:
        return Tally(failed=1), 1
    if code == NO_TESTS_COLLECTED:
        return Tally(), 0
    counts = tally(lane.report)
    if code == TESTS_FAILED and counts.failed <= SECOND_TRY_AT_MOST:
        code, counts = second_try(stage, lane, counts)
    return counts, code


def second_try(stage: Stage, lane: Lane, first: Tally) -> tuple[int, Tally]:
    """Runs a few failed tests once more, alone, and says so: processes that share two cores time
    out now and then. A test that fails again has failed; pytest's output names both."""
    print(f"== {stage.name}: {first.failed} failed, trying those once more ==", flush=True)
    lane.report.unlink()
    code = run_bounded([*lane.command, "--last-failed", "--last-failed-no-failures=none"], 600)
    again = tally(lane.report)
    recovered = first.failed - again.failed if code in (0, TESTS_FAILED) else 0
    print(f"== {stage.name}: {recovered} passed only on the second try ==", flush=True)
    counts = Tally(first.passed + recovered, first.failed - recovered, first.skipped)
    return (0 if counts.failed == 0 else 1), counts


def marker_expression(options: argparse.Namespace) -> str:
    wanted = [] if options.long else ["not long"]
    if options.compat:
        wanted.append("(compat or not (engine or e2e))")
    if not options.gpu:
        wanted.append("not gpu")
    return " and ".join(wanted)


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    flags.add_argument("--long", action="store_true", help="the long profiles as well")
    flags.add_argument("--gpu", action="store_true", help="tests that need CUDA as well")
    flags.add_argument("--compat", action="store_true", help="units and tests marked 'compat'")
    flags.add_argument("--stage", action="append", choices=[stage.name for stage in STAGES])
    options, extra = flags.parse_known_args(argv)
    stages = COMPAT_STAGES if options.compat else LONG_STAGES if options.long else STAGES
    chosen = [stage for stage in stages if not options.stage or stage.name in options.stage]
    total, worst = Tally(), 0
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sglang-worker-reports-") as reports:
        for stage in chosen:
            counts, code = run_stage(stage, marker_expression(options), extra, Path(reports))
            total, worst = total + counts, worst or code
    print(f"all stages: {time.monotonic() - started_s:.0f} s", flush=True)
    print(f"total: {total}", flush=True)
    if total.passed == 0 and not worst:
        print("no test ran", file=sys.stderr)
        return 1
    return worst


if __name__ == "__main__":
    os.chdir(REPOSITORY)
    stop_on_sigterm()
    sys.exit(main())
