from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import process_table
from tests.support.processes import LeakedProcesses, ManagedProcess, ProcessEnded
from tests.support.wait import WaitTimeout

Start = Callable[[str], ManagedProcess]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def run(script: str) -> ManagedProcess:
        return ManagedProcess(
            [sys.executable, "-u", "-c", script],
            name="subject",
            log_path=tmp_path / "subject.log",
            environ=os.environ,
        )

    return run


def test_stop_returns_the_exit_code_of_a_graceful_process(start: Start) -> None:
    process = start(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('ready')\n"
        "signal.pause()"
    )
    process.wait_log("^ready")
    assert process.stop(deadline_s=5) == 7


def test_a_process_that_ignores_sigterm_is_killed(start: Start) -> None:
    process = start(
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('ready')\n"
        "while True: signal.pause()"
    )
    process.wait_log("^ready")
    assert process.stop(deadline_s=0.2) == -signal.SIGKILL


def test_an_early_end_shows_the_last_log_lines(start: Start) -> None:
    process = start("print('the reason'); raise SystemExit(3)")
    with pytest.raises(ProcessEnded, match="the reason"):
        process.wait_log("never", deadline_s=5)
    assert process.stop() == 3


def test_a_wait_that_times_out_shows_the_log(start: Start) -> None:
    process = start("import signal; print('still loading'); signal.pause()")
    with pytest.raises(WaitTimeout, match="still loading"):
        process.wait_log("never", deadline_s=0.5)
    process.kill()


def test_an_orphan_in_a_session_of_its_own_is_found_and_killed(start: Start) -> None:
    process = start(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'],"
        " start_new_session=True)\n"
        "print('child', child.pid)\n"
        "import signal; signal.pause()"
    )
    match = process.wait_log(r"^child (\d+)")
    process.members()
    with pytest.raises(LeakedProcesses, match=match[1]):
        process.stop(leak_deadline_s=0.2)
    assert match[1] not in {str(one.pid) for one in process_table.descendants()}


def test_a_child_that_ends_with_its_parent_is_no_leak(start: Start) -> None:
    process = start(
        "import subprocess, sys, signal\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()'],"
        " stdin=subprocess.PIPE)\n"
        "print('ready')\n"
        "signal.pause()"
    )
    process.wait_log("^ready")
    process.send(signal.SIGKILL)
    assert process.wait_exit(5) == -signal.SIGKILL
    process.check_nothing_left(5)
