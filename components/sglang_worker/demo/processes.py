"""Child processes of the demo: own session, log file, tail on failure, nothing left behind.

Standard library only and Linux only. :func:`adopt_orphans` makes this process the parent of
everything its children leave behind, so :func:`stop_all` can find and end all of it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.05


class ChildSpec(msgspec.Struct, frozen=True):
    """What to start: ``name`` also names the log file."""

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]


class DemoFailure(Exception):
    """A step of the demo failed: the message says which, ``tail`` is the process's last lines."""

    def __init__(self, message: str, tail: str = "") -> None:
        super().__init__(message)
        self.tail = tail


class Child:
    """One started process with its log."""

    def __init__(self, spec: ChildSpec, log_folder: Path) -> None:
        self.spec = spec
        self.log_path = log_folder / f"{spec.name}.log"
        with self.log_path.open("wb") as log:
            self._popen = subprocess.Popen(
                list(spec.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(spec.environ),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        return self._popen.poll()

    def tail(self, lines: int = 25) -> str:
        """Return the last lines of the log, without terminal colours."""
        return tail_of(self.log_path, lines)

    def require_running(self) -> None:
        """Raise DemoFailure with the log's tail when the process has ended."""
        code = self.exit_code
        if code is not None:
            raise DemoFailure(f"the {self.spec.name} ended with {describe_exit(code)}", self.tail())

    def ask_to_stop(self) -> None:
        if self.exit_code is None:
            self._popen.terminate()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end; False when it still runs after ``timeout_s``."""
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True


def describe_exit(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def tail_of(path: Path, lines: int) -> str:
    try:
        text = path.read_bytes()[-64_000:].decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(without_colours(line) for line in text.splitlines()[-lines:])


def without_colours(line: str) -> str:
    """Drop ANSI escape sequences of the form ``ESC [ … m``."""
    head, *parts = line.split("\x1b[")
    return head + "".join(part.partition("m")[2] for part in parts)


def wait_until(
    condition: Callable[[], bool],
    children: Sequence[Child],
    timeout_s: float,
    failure: str,
    on_wait: Callable[[float], None] = lambda _elapsed_s: None,
) -> float:
    """Poll ``condition``; returns the seconds it took.

    Ends early, with the log's tail, when one of ``children`` ends; raises DemoFailure with
    ``failure`` and the last child's tail when the time is over.
    """
    started = time.monotonic()
    while True:
        if condition():
            return time.monotonic() - started
        for child in children:
            child.require_running()
        elapsed_s = time.monotonic() - started
        if elapsed_s > timeout_s:
            tail = children[-1].tail() if children else ""
            raise DemoFailure(f"{failure} within {timeout_s:.0f} s", tail)
        on_wait(elapsed_s)
        time.sleep(POLL_S)


def adopt_orphans() -> None:
    """Become the reaper of descendants, so that a lost grandchild stays within reach."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> set[int]:
    """Return the process ids of all living descendants of ``root`` (zombies excluded)."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _read_stat(int(entry))) is not None:
            state, parent = stat
            if state != "Z":
                parents[int(entry)] = parent
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found - {root}
        found |= more


def _read_stat(pid: int) -> tuple[str, int] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command may contain spaces and brackets; the fields after the last one are fixed.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[1])


def stop_all(children: Sequence[Child], grace_s: float) -> set[int]:
    """Stop every child, last started first; returns the processes that had to be killed.

    Each gets SIGTERM and ``grace_s`` seconds together; what is left of this process's
    descendants after that, whatever its session, is killed and reaped.
    """
    for child in reversed(children):
        child.ask_to_stop()
    deadline = time.monotonic() + grace_s
    for child in reversed(children):
        child.wait(max(0.0, deadline - time.monotonic()))
    # Helpers of a child (its listener, a resource tracker) need a moment after the child's end.
    settle = min(deadline, time.monotonic() + 2.0)
    while descendants(os.getpid()) and time.monotonic() < settle:
        time.sleep(POLL_S)
    return kill_descendants(children)


def kill_descendants(children: Sequence[Child] = (), timeout_s: float = 10.0) -> set[int]:
    """SIGKILL every descendant until none is left; returns their ids."""
    killed: set[int] = set()
    deadline = time.monotonic() + timeout_s
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # ended between the listing and the signal
        killed |= left
        for child in children:
            child.wait(0.5)
        _reap_adopted()
        time.sleep(POLL_S)
    return killed


def _reap_adopted() -> None:
    """Collect ended orphans that :func:`adopt_orphans` brought here."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
