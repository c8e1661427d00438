"""The program as an operator runs it: one line on standard error, exit code 2, no model loaded."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest
from sglang_worker.config.quiet import held_logs
from sglang_worker.errors import ConfigError


def run(*argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("DYN_", "NATS_"))}
    return subprocess.run(
        [sys.executable, "-m", "dynamo.sglang", *argv],
        env={**clean, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("argv", "variables", "part"),
    [
        (["--shutdown-timeout", "soon"], {}, "--shutdown-timeout='soon'"),
        ([], {"DYN_SYSTEM_PORT": "99999"}, "DYN_SYSTEM_PORT='99999'"),
        (["--default-chat-template-kwargs", "{}"], {}, "frontend"),
        (["--request-plane", "TCP"], {"DYN_SYSTEM_PORT": "60000"}, "--request-plane"),
        (["--model-path", "/no/such/model"], {}, "/no/such/model"),
    ],
)
def test_a_wrong_command_line_ends_in_one_line_and_exit_code_2(
    argv: list[str], variables: dict[str, str], part: str
) -> None:
    flags = argv if "--model-path" in argv else ["--model-path", "org/model", *argv]
    result = run(*flags, **variables)
    assert result.returncode == 2, result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1 and part in lines[0], result.stderr
    assert result.stdout == ""


def test_version_needs_no_engine() -> None:
    result = run("--version")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("sglang-worker ")


def test_logs_of_a_refused_configuration_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test.quiet")
    with pytest.raises(ConfigError), held_logs():
        logger.warning("noise")
        raise ConfigError("wrong")
    assert "noise" not in caplog.text


def test_logs_of_a_good_or_broken_start_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test.quiet")
    with held_logs():
        logger.warning("first")
    with pytest.raises(RuntimeError), held_logs():
        logger.warning("second")
        raise RuntimeError
    assert "first" in caplog.text and "second" in caplog.text
