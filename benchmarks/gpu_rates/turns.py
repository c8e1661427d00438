"""Rows start side by side and are timed one at a time, in rounds.

A row's process writes ``ready`` when its kernels are compiled and waits for ``go`` of a round; the
batch hands ``go`` to one row after the other and waits for ``done``. Idle engines of the other rows
stay up meanwhile, stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

POLL_S = 0.1


class Turn:
    """The marks of one row, as files below ``folder``."""

    def __init__(self, folder: Path, index: int) -> None:
        self._folder = folder
        self._index = index

    @property
    def ready(self) -> Path:
        return self._folder / f"{self._index}.ready"

    def go(self, number: int) -> Path:
        return self._folder / f"{self._index}.{number}.go"

    def done(self, number: int) -> Path:
        return self._folder / f"{self._index}.{number}.done"

    def take(self, number: int, deadline_s: float) -> bool:
        """The row's side: wait for the turn. False: none came until the deadline."""
        self.ready.touch()
        return wait_for(self.go(number).exists, deadline_s)


def wait_for(condition: Callable[[], bool], deadline_s: float) -> bool:
    """``deadline_s`` on the monotonic clock, which all processes of a machine share."""
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(POLL_S)
    return True
