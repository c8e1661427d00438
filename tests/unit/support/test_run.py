from __future__ import annotations

from pathlib import Path

from tests import run
from tests.run import Tally

REPORT = """<testsuites><testsuite tests="7" failures="1" errors="1" skipped="2">
</testsuite></testsuites>"""


def test_a_report_is_counted(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert run.tally(report) == Tally(passed=3, failed=2, skipped=2)


def test_a_stage_that_was_ended_counts_as_a_failure(tmp_path: Path) -> None:
    assert run.tally(tmp_path / "missing.xml") == Tally(failed=1)


def test_stages_add_up_to_the_closing_line() -> None:
    assert str(Tally(3, 1, 0) + Tally(2, 0, 4)) == "5 passed, 1 failed, 4 skipped"


def test_a_command_that_runs_too_long_is_ended() -> None:
    assert run.run_bounded(["sleep", "30"], 0.1) is None
    assert run.run_bounded(["true"], 10) == 0
