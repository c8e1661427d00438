"""What the entry point answers without starting a worker: help, version, check, and errors."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from sglang_worker.config.own_flags import CHECK_LEVELS
from sglang_worker.errors import ConfigError


def handle_early(
    argv: Sequence[str],
    environ: Mapping[str, str],
    out: TextIO | None = None,
    err: TextIO | None = None,
) -> int | None:
    """The exit code when ``argv`` asks for help, version or a check; None to start the worker."""
    out, err = out or sys.stdout, err or sys.stderr
    if "--version" in argv:
        from sglang_worker.config.help import version_text

        _print(version_text(), out)
        return 0
    if "--help" in argv or "-h" in argv:
        return _print_help(out)
    level = check_level(argv)
    return None if level is None else _check(argv, environ, level, out, err)


def check_level(argv: Sequence[str]) -> str | None:
    """``static`` or ``model`` if ``--check`` is among the flags (an unknown level: static, and
    parsing then refuses it by name)."""
    level = None
    for position, token in enumerate(argv):
        name, _, value = token.partition("=")
        if name != "--check":
            continue
        following = argv[position + 1] if position + 1 < len(argv) else ""
        word = value or following
        level = word if word in CHECK_LEVELS else CHECK_LEVELS[0]
    return level


def _print_help(out: TextIO) -> int:
    from sglang_worker.config.help import full_help

    with contextlib.redirect_stdout(sys.stderr):
        text = full_help()
    _print(text, out)
    return 0


def _print(text: str, out: TextIO) -> None:
    """Print; a reader that has seen enough (``--help | head``) is no error."""
    try:
        print(text, file=out, flush=True)
    except BrokenPipeError:
        # The buffer still holds the rest, and Python flushes it once more at exit.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, out.fileno())
        os.close(nowhere)


def _check(
    argv: Sequence[str], environ: Mapping[str, str], level: str, out: TextIO, err: TextIO
) -> int:
    from sglang_worker.config.check import run_check

    # Imported libraries may print; standard output carries the plan alone.
    with contextlib.redirect_stdout(sys.stderr):
        plan, code = run_check(argv, environ, "model" if level == "model" else "static")
    _print(json.dumps(plan, indent=2), out)
    for error in plan["errors"]:
        print(error_line(error), file=err)
    return code


def error_line(error: ConfigError | str) -> str:
    """How every refusal looks on standard error: one line."""
    return f"configuration error: {' '.join(str(error).split())}"
