"""``make demo`` as a newcomer runs it: real frontend, real worker, real engine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.environment import clean_environment

pytestmark = pytest.mark.e2e
LIMIT_S = 300


def test_the_demo_answers_in_sentences_and_its_draft_is_often_right(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sglang_worker.demo", "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A small draft model guesses the next tokens" in done.stdout
    assert "Draining means that a worker takes no new requests" in done.stdout
    length = re.search(r"acceptance length: ([\d.]+)", done.stdout)
    assert length is not None
    assert float(length[1]) > 1.5
    assert "runner target: Qwen3NextForCausalLM" in done.stdout
    assert "had to be killed" not in done.stdout


def test_a_frontend_whose_port_is_taken_fails_the_demo(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "sglang_worker.demo",
                "--dir",
                str(tmp_path),
                "--http-port",
                port,
            ],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=clean_environment(),
        )
    assert done.returncode == 1, done.stdout
    assert "the frontend ended with" in done.stderr
    assert "last lines" in done.stderr
