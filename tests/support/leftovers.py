"""``python -m tests.support.leftovers MARK SINCE``: names what a test run left running, exit 1.

MARK is a ``NAME=value`` that the run put into its environment; such processes are killed after
``DEADLINE_S``. Engine processes overwrite their environment block with their title: those are told
by a library of this virtual environment that they have mapped and by a start after SINCE (seconds
of the epoch). That is no proof of ownership, so they are named but never killed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support import process_table
from tests.support.process_table import Identity

DEADLINE_S = 10.0


def _has_mark(pid: int, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _uses_environment(pid: int, prefix: str) -> bool:
    try:
        return f"{prefix}/" in Path(f"/proc/{pid}/maps").read_text(errors="replace")
    except OSError:
        return False


def leftovers(
    mark: str, since_s: float, prefix: str = sys.prefix
) -> Iterator[tuple[Identity, bool]]:
    """Running processes of the run, each with True when it carries the mark.

    This process and its ancestors (the script that asks) are left out.
    """
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        identity = None if process.pid in own else process_table.identify(process)
        if identity is None or not process_table.alive(identity):
            continue
        marked = _has_mark(process.pid, mark)
        late = identity.started_s >= since_s
        if marked or (late and _uses_environment(process.pid, prefix)):
            yield identity, marked


def main(mark: str, since_s: float) -> int:
    end = time.monotonic() + DEADLINE_S
    found = list(leftovers(mark, since_s))
    while found and time.monotonic() < end:
        time.sleep(0.25)
        found = list(leftovers(mark, since_s))
    for identity, marked in found:
        state = "killed now" if marked else "left alone, not provably ours"
        print(f"still running: {identity.pid} {identity.command} ({state})", file=sys.stderr)
    process_table.kill(identity for identity, marked in found if marked)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2])))
