"""A step as a process: bounded, and with everything that it started gone when it is over."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from benchmarks.whole.steps import Step
from tests.support import process_table

# A step has fixtures to take down: engines, frontends.
CLEAN_UP_S = 30.0
# A step that would have less than this is not begun.
LEAST_S = 20.0


class Outcome(msgspec.Struct, frozen=True):
    """``fault``: None, or why there is no new table."""

    step: Step
    seconds: float
    fault: str | None = None


def command(step: Step, results: Path, smoke: bool) -> list[str]:
    arguments = (step.smoke or ()) if smoke else step.arguments
    filled = [one.replace("{results}", str(results)) for one in arguments]
    return [sys.executable, "-m", f"benchmarks.{step.module}", *filled]


def run(
    steps: Sequence[Step], total_s: float, command_of: Callable[[Step], list[str]]
) -> list[Outcome]:
    """Each step within its limit and all within ``total_s``; a fault keeps none from running.

    After an interrupt the step that ran is taken down, and those after it are not begun.
    """
    process_table.become_subreaper()
    end_s = time.monotonic() + total_s
    outcomes: list[Outcome] = []
    interrupted = False
    for step in steps:
        left_s = end_s - time.monotonic() - CLEAN_UP_S
        if interrupted or left_s < LEAST_S:
            why = "interrupted" if interrupted else "the time for all steps was used up"
            outcomes.append(Outcome(step, 0.0, f"not begun: {why}"))
            continue
        try:
            outcomes.append(run_step(step, command_of(step), min(step.limit_s, left_s)))
        except KeyboardInterrupt:
            interrupted = True
            outcomes.append(Outcome(step, 0.0, "interrupted"))
    return outcomes


def run_step(step: Step, words: Sequence[str], limit_s: float) -> Outcome:
    print(f"== {' '.join(words[1:])} (at most {limit_s:.0f} s)", flush=True)
    began_s = time.monotonic()
    before = process_table.descendants()
    # A group of its own: an interrupt of the terminal is handed on once, by `_end`.
    child = subprocess.Popen(words, start_new_session=True, preexec_fn=_heed_interrupts)
    try:
        code = child.wait(limit_s)
        fault = None if code == 0 else f"exit code {code}"
    except subprocess.TimeoutExpired:
        fault = f"not done after {limit_s:.0f} s, ended"
    finally:
        _end(child)
        process_table.kill(process_table.descendants() - before)
    seconds = time.monotonic() - began_s
    print(f"== {step.module}: {fault or 'done'} after {seconds:.0f} s", flush=True)
    return Outcome(step, seconds, fault)


def _heed_interrupts() -> None:
    """A shell lets its background jobs, and so what they start, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(child: subprocess.Popen[bytes]) -> None:
    """SIGINT first, so that the step takes its processes down."""
    if child.poll() is not None:
        return
    child.send_signal(signal.SIGINT)
    try:
        child.wait(CLEAN_UP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
