"""A thread that ends the process when a stage of the shutdown hangs.

It shares no lock with the event loop, so it works while the loop is blocked in a native call.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sglang_worker.errors import ExitCode

logger = logging.getLogger(__name__)


def leave(stage: str) -> None:
    """Show where every thread is, then exit at once; the engine's processes die with us."""
    logger.critical("shutdown: stage %r hangs; leaving with code 70", stage)
    faulthandler.dump_traceback(all_threads=True)
    os._exit(ExitCode.SHUTDOWN_WATCHDOG)


class Watchdog:
    """``with watchdog.stage(name, limit_s)``: ``on_hang(name)`` when the block takes longer."""

    def __init__(
        self,
        on_hang: Callable[[str], None] = leave,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_hang = on_hang
        self._clock = clock
        self._changed = threading.Condition()
        self._stage: tuple[str, float] | None = None
        # Seconds of the stages that ended, and when the present one began.
        self._took_s: dict[str, float] = {}
        self._entered: tuple[str, float] | None = None
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="shutdown-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._set(None, ended=True)

    @contextmanager
    def stage(self, name: str, limit_s: float) -> Iterator[None]:
        began_s = self._clock()
        self._entered = (name, began_s)
        self._set((name, began_s + limit_s))
        try:
            yield
        finally:
            self._set(None)
            self._took_s[name] = self._clock() - began_s
            self._entered = None

    def stage_seconds(self) -> dict[str, float]:
        """How long each stage took, the present one so far; from any thread."""
        seconds = dict(self._took_s)
        if (entered := self._entered) is not None:
            seconds[entered[0]] = self._clock() - entered[1]
        return seconds

    def _set(self, stage: tuple[str, float] | None, ended: bool = False) -> None:
        with self._changed:
            self._stage = stage
            self._ended = self._ended or ended
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._ended:
                if self._stage is None:
                    self._changed.wait()
                    continue
                name, deadline_s = self._stage
                left_s = deadline_s - self._clock()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
            else:
                return
        self._on_hang(name)
