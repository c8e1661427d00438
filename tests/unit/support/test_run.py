from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests import run
from tests.run import Tally
from tests.support.processes import ManagedProcess

REPORT = """<testsuites><testsuite tests="7" failures="1" errors="1" skipped="2">
</testsuite></testsuites>"""

# Plugins that these tests do without take a second to import.
QUICK = ("-p", "no:hypothesispytest", "-p", "no:asyncio")


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


def test_a_cancelled_run_stops_what_its_tests_started(tmp_path: Path) -> None:
    test = tmp_path / "test_long.py"
    test.write_text(
        "import signal, pytest\n"
        "@pytest.fixture\n"
        "def deployment(tmp_path):\n"
        f"    open({str(tmp_path / 'started')!r}, 'w').close()\n"
        "    yield\n"
        f"    open({str(tmp_path / 'stopped')!r}, 'w').close()\n"
        "def test_wait(deployment):\n"
        "    signal.pause()\n"
    )
    script = (
        "import sys; from tests import run; run.stop_on_sigterm();"
        f"run.run_bounded([sys.executable, '-m', 'pytest', '-q', '-p', 'tests.conftest',"
        f" '-c', 'pyproject.toml', {str(test)!r}], 60)"
    )
    with ManagedProcess(
        [sys.executable, "-c", script],
        name="run",
        log_path=tmp_path / "log",
        environ=os.environ,
        cwd=run.REPOSITORY,
    ) as process:
        process.wait_for((tmp_path / "started").exists, "the test runs", deadline_s=60)
        assert process.stop() == 128 + signal.SIGTERM
    assert (tmp_path / "stopped").exists()


def stage_of(tmp_path: Path, body: str) -> run.Stage:
    test = tmp_path / "test_stage.py"
    test.write_text(body)
    return run.Stage("stage", (str(test),), 60)


def test_a_test_that_passes_on_the_second_try_is_counted_and_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mark = tmp_path / "been-here"
    stage = stage_of(
        tmp_path,
        "from pathlib import Path\n"
        "def test_steady(): pass\n"
        "def test_shaky():\n"
        f"    mark = Path({str(mark)!r})\n"
        "    been_here, _ = mark.exists(), mark.touch()\n"
        "    assert been_here\n",
    )
    extra = [*QUICK, "-o", f"cache_dir={tmp_path / 'cache'}"]
    assert run.run_stage(stage, "not gpu", extra, tmp_path) == (Tally(passed=2), 0)
    printed = capfd.readouterr().out
    assert "FAILED" in printed and "test_shaky" in printed
    assert "1 passed only on the second try" in printed


def test_a_test_that_fails_twice_fails_the_stage(tmp_path: Path) -> None:
    stage = stage_of(tmp_path, "def test_good(): pass\ndef test_bad(): assert False\n")
    extra = [*QUICK, "-o", f"cache_dir={tmp_path / 'cache'}"]
    assert run.run_stage(stage, "not gpu", extra, tmp_path) == (Tally(passed=1, failed=1), 1)


def test_both_processes_of_a_stage_count_and_fail_it_and_run_no_test_twice(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    stage_of(tmp_path, "def test_here(): pass\n")
    beside = tmp_path / "beside"
    beside.mkdir()
    (beside / "test_there.py").write_text("def test_there(): assert False\ndef test_too(): pass\n")
    stage = run.Stage("stage", (str(tmp_path),), 60, (str(beside),))
    extra = [*QUICK, "-o", f"cache_dir={tmp_path / 'cache'}"]
    assert run.run_stage(stage, "not gpu", extra, tmp_path) == (Tally(passed=2, failed=1), 1)
    assert "test_there" in capfd.readouterr().out


def test_every_folder_that_a_second_process_runs_exists() -> None:
    assert all((run.REPOSITORY / path).is_dir() for path in run.UNITS_BESIDE)


def test_processes_side_by_side_share_the_time_and_are_all_ended() -> None:
    lanes = [run.Lane((command, "30"), Path()) for command in ("sleep", "sleep")]
    assert run.run_beside(lanes, 0.2) == [None, None]
