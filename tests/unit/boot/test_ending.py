from __future__ import annotations

import subprocess
import sys


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from sglang_worker.boot.ending import ENDING\n" + program],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_port_closes_after_every_other_exit_handler_and_the_code_stands() -> None:
    ended = run(
        "import atexit\n"
        "ENDING.arm()\n"
        "ENDING.last = lambda: print('port closed')\n"
        "atexit.register(print, 'runtime gone')\n"
        "ENDING.code = 71\n"
    )
    assert ended.stdout.splitlines() == ["runtime gone", "port closed"]
    assert ended.returncode == 71


def test_an_unexpected_exception_still_ends_with_its_traceback() -> None:
    ended = run("ENDING.arm()\nraise KeyError('lost')\n")
    assert ended.returncode == 1
    assert "KeyError: 'lost'" in ended.stderr


def test_a_forked_child_does_not_close_the_port() -> None:
    ended = run(
        "import os, sys\n"
        "ENDING.arm()\n"
        "ENDING.last = lambda: print('port closed')\n"
        "ENDING.code = 0\n"
        "pid = os.fork()\n"
        "if pid == 0: sys.exit(7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n"
    )
    assert ended.stdout.splitlines() == ["7", "port closed"]
