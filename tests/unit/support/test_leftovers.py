from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support import leftovers, process_table

# A prefix that nothing maps: what other people run from the same environment must not matter here.
ELSEWHERE = "/nowhere"


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return f"LEFTOVER_TEST={tmp_path.name}-{os.getpid()}"


def start(mark: str) -> subprocess.Popen[bytes]:
    name, _, value = mark.partition("=")
    script = "import signal; print(flush=True); signal.pause()"
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env={**os.environ, name: value},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def found(mark: str, **options: str) -> set[int]:
    return {one.pid for one, _ in leftovers.leftovers(mark, time.time() + 1e6, **options)}


def test_a_marked_process_in_its_own_session_is_found_named_and_killed(
    mark: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    process = start(mark)
    monkeypatch.setattr(leftovers, "DEADLINE_S", 0.1)
    assert leftovers.main(mark, time.time() + 1e6) == 1
    assert f"still running: {process.pid}" in capsys.readouterr().err
    assert process.wait(5) != 0
    assert leftovers.main(mark, time.time() + 1e6) == 0


def test_processes_without_the_mark_are_nobody_elses_business(mark: str) -> None:
    process = start("OTHER=1")
    assert process.pid not in found(mark)
    process.kill()
    process.wait()


def test_a_process_of_the_environment_is_named_but_left_alone(
    mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start("OTHER=1")
    known = {process.pid}
    started_s = process_table.identify(leftovers.psutil.Process(process.pid))
    assert started_s is not None
    prefix = str(Path(os.path.realpath(sys.executable)).parents[1])
    seen = dict(leftovers.leftovers(mark, started_s.started_s, prefix=prefix))
    assert known <= {one.pid for one in seen}
    assert not any(marked for one, marked in seen.items() if one.pid in known)
    process.kill()
    process.wait()
