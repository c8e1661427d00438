"""``make bench`` ends in time, shows what was measured, and names what was not."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks import run as bench
from benchmarks.drain_proof.table import markdown
from benchmarks.whole import running
from benchmarks.whole.running import Outcome, command, run
from benchmarks.whole.steps import STEPS, Step, present
from tests.support import process_table

LEAVES_ONE = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
)
open(sys.argv[1], "w").write(str(child.pid))
"""


def step(name: str, limit_s: float = 60.0) -> Step:
    return Step(name, (), (), limit_s, f"{name}.md")


def programs(codes: dict[str, str], *more: str) -> dict[str, list[str]]:
    return {name: [sys.executable, "-c", code, *more] for name, code in codes.items()}


def outcomes(codes: dict[str, str], total_s: float = 600.0, *more: str) -> dict[str, Outcome]:
    words = programs(codes, *more)
    steps = [step(name) for name in codes]
    return {one.step.module: one for one in run(steps, total_s, lambda step: words[step.module])}


def test_a_failed_step_is_named_and_the_next_one_runs(tmp_path: Path) -> None:
    found = outcomes({"one": "raise SystemExit(3)", "two": "pass"})
    assert (found["one"].fault, found["two"].fault) == ("exit code 3", None)
    (tmp_path / "two.md").write_text("# Two\n")
    text = bench.report(list(found.values()), tmp_path, 5.0)
    assert text.startswith("# Two\n")
    assert "== one: exit code 3" in text
    assert text.endswith("failed: one")


def test_a_step_is_ended_at_its_limit_and_may_take_its_processes_down(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    code = f"""
import time
try:
    open({str(tmp_path / "began")!r}, "w")
    time.sleep(600)
except KeyboardInterrupt:
    open({str(ended)!r}, "w")
"""
    [words] = programs({"slow": code}).values()
    # Long enough for an interpreter to come up on a busy machine.
    found = running.run_step(step("slow"), words, limit_s=4.0)
    assert found.fault == "not done after 4 s, ended"
    assert ended.exists()


def test_what_a_step_leaves_behind_is_ended(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    assert outcomes({"one": LEAVES_ONE}, 600.0, str(told))["one"].fault is None
    left = int(told.read_text())
    assert left not in {one.pid for one in process_table.descendants()}
    with suppress(ChildProcessError):
        os.waitpid(left, 0)


def test_a_step_for_which_no_time_is_left_is_not_begun() -> None:
    found = outcomes({"one": "raise SystemExit('never')"}, total_s=running.CLEAN_UP_S + 1)
    assert found["one"].fault == "not begun: the time for all steps was used up"


def test_an_interrupt_ends_the_run_but_not_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "run_step", interrupted)
    found = outcomes({"one": "pass", "two": "pass"})
    assert (found["one"].fault, found["two"].fault) == ("interrupted", "not begun: interrupted")


def test_every_step_knows_where_its_files_go_and_the_total_fits_20_minutes() -> None:
    for one in STEPS:
        if one.table is not None:
            for smoke in (False, True):
                assert "/here" in command(one, Path("/here"), smoke)
    assert bench.TOTAL_S < 1200
    assert {one.module for one in present()} >= {"relay", "serving", "startup", "drain", "memory"}


def test_an_unknown_step_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        bench.main(["--only", "relay,weather"])
    assert "no step weather" in capsys.readouterr().err


def test_a_drain_table_counts_what_was_lost() -> None:
    phase = {
        "phase": "drain cycles",
        "requests": 12,
        "verdicts": {"same": 9, "failed": 1},
        "never_migrated": {"same": 2},
        "times": {
            "drained": {"count": 3, "median_s": 0.7, "max_s": 1.2},
            "cycles": {"count": 1, "median_s": 3, "max_s": 3},
        },
        "broken": ["no resume"],
    }
    report = {
        "profile": "short",
        "machine": "m",
        "grace_s": 0.5,
        "passed": False,
        "phases": [phase],
    }
    assert markdown(report).splitlines()[-1] == (
        "| drain cycles | 12 | 9 | 1 | 2 same | drained 0.7 (1.2) of 3; BROKEN: no resume |"
    )
