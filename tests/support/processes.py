"""A process under test: own session, log file, tail on failure, stopped with all it started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tests.support import process_table
from tests.support.process_table import Identity
from tests.support.wait import WaitTimeout, wait_until

TAIL_LINES = 40


class ProcessEnded(AssertionError):
    """A process ended while a test still needed it; the message ends with its last log lines."""


class LeakedProcesses(AssertionError):
    """A process ended (or was stopped) and left others running. They have been killed since."""


class ManagedProcess:
    """One started command.

    ``stop`` sends SIGTERM to the command alone, as a container runtime does, and only after the
    deadline SIGKILL to everything that it started. Whatever outlives it is a leak.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        log_path: Path,
        environ: Mapping[str, str],
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_path = log_path
        log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log: IO[bytes] = log_path.open("ab")
        self._known: frozenset[Identity] = frozenset()
        self._asked_to_stop = False
        self._popen = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        body = "\n".join(self.log().splitlines()[-lines:])
        return f"--- last lines of {self.name} (exit {self.exit_code}, {self.log_path}) ---\n{body}"

    def members(self) -> frozenset[Identity]:
        """All running descendants seen so far, those that were orphaned since included."""
        seen = self._known | process_table.descendants(self.pid)
        self._known = frozenset(one for one in seen if process_table.alive(one))
        return self._known

    def require_running(self) -> None:
        if not self.running:
            raise ProcessEnded(f"{self.name} ended early\n{self.tail()}")

    def wait_log(self, pattern: str, *, deadline_s: float = 60.0) -> re.Match[str]:
        """Waits for a log line that matches ``pattern`` (re.search, multi-line)."""

        def found() -> re.Match[str] | None:
            match = re.search(pattern, self.log(), re.MULTILINE)
            if match is None:
                self.require_running()
            return match

        return self.wait_for(found, f"{self.name} logs /{pattern}/", deadline_s=deadline_s)

    def wait_for(self, condition: Any, message: str, *, deadline_s: float, **options: Any) -> Any:
        """``wait_until``, ending early with the log when the process dies, late with its tail."""

        def checked() -> Any:
            try:
                value = condition()
            except Exception:
                # A process that died refuses connections, which looks like one not yet up.
                self.require_running()
                raise
            if not value:
                self.require_running()
            self.members()
            return value

        try:
            return wait_until(checked, message, deadline_s=deadline_s, **options)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}\n{self.tail()}") from None

    def send(self, signal_number: int) -> None:
        self.members()
        if self.running:
            self._popen.send_signal(signal_number)

    def wait_exit(self, deadline_s: float = 30.0) -> int:
        try:
            return self._popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise WaitTimeout(
                f"{self.name} still runs after {deadline_s} s\n{self.tail()}"
            ) from None

    def ask_to_stop(self) -> None:
        """What `stop` begins with, for several that end side by side. Workers take a second SIGTERM
        for impatience and end at once, so it is sent once."""
        if not self._asked_to_stop:
            self._asked_to_stop = True
            self.send(signal.SIGTERM)

    def stop(self, *, deadline_s: float = 30.0, leak_deadline_s: float = 10.0) -> int:
        """SIGTERM, wait, then SIGKILL for all; returns the exit code.

        Raises :class:`LeakedProcesses` when descendants outlive the command by more than
        ``leak_deadline_s`` seconds. Calling it again is harmless.
        """
        self.ask_to_stop()
        try:
            self._popen.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self.check_nothing_left(leak_deadline_s)
        return self._popen.returncode

    def kill(self) -> None:
        """SIGKILL for the command and everything below it."""
        members = self.members()
        if self.running:
            self._popen.kill()
        process_table.kill(members | self.members())
        self._popen.wait()
        self._log.close()

    def check_nothing_left(self, deadline_s: float = 10.0) -> None:
        """After the command has ended: nothing that it started may run on."""
        left = process_table.wait_gone(self.members() | self._group(), deadline_s)
        self._log.close()
        if left:
            process_table.kill(left)
            names = "\n".join(f"  {one.pid} {one.command}" for one in left)
            raise LeakedProcesses(f"{self.name} left processes behind:\n{names}\n{self.tail()}")

    def _group(self) -> frozenset[Identity]:
        """Running members of the command's session, whoever their parent is by now."""
        ours = (one for one in process_table.descendants() if _session(one.pid) == self.pid)
        return frozenset(one for one in ours if one.pid != self.pid)

    def __enter__(self) -> ManagedProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.stop()
        else:
            self.kill()
            if error is not None and hasattr(error, "add_note"):
                error.add_note(self.tail())


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
