"""Rows start side by side and are timed one at a time.

A row's process writes ``ready`` when its kernels are compiled and waits for ``go``; the batch hands
``go`` to one row after the other. Idle engines of the other rows stay up meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.1


class Turn:
    """The three marks of one row, as files below ``folder``."""

    def __init__(self, folder: Path, index: int) -> None:
        self.ready = folder / f"{index}.ready"
        self.go = folder / f"{index}.go"

    def take(self, deadline_s: float) -> bool:
        """The row's side: say ready, wait for the turn. False: none came until the deadline."""
        self.ready.touch()
        return wait_for(self.go.exists, deadline_s)

    def clear(self) -> None:
        self.ready.unlink(missing_ok=True)
        self.go.unlink(missing_ok=True)


def wait_for(condition: Callable[[], bool], deadline_s: float) -> bool:
    """``deadline_s`` on the monotonic clock, which all processes of a machine share."""
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True
