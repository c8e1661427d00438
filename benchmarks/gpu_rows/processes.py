"""A row in a process group of its own, with a log and an end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class RowProcess:
    """Engines leave schedulers behind when they crash: what is signalled is the whole group."""

    def __init__(
        self, command: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        """``environ``: on top of this process's own."""
        self.log = log
        with log.open("wb") as sink:
            self._child = subprocess.Popen(
                command,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environ or {})},
            )

    @property
    def ended(self) -> bool:
        """The row itself; others of its group may be left."""
        return self._child.poll() is not None

    def wait(self, limit_s: float) -> int | str:
        """The exit code, or a word about the limit. Nothing of the group is left afterwards."""
        try:
            return self._child.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return f"killed after {limit_s:.0f} s"
        finally:
            self.end()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        self._signal(signal.SIGKILL)
        self._child.wait()

    def log_tail(self, size_bytes: int) -> str:
        return self.log.read_bytes()[-size_bytes:].decode(errors="replace")

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, number)
