"""Tells the worker that a scheduler or the detokenizer died, within milliseconds and threadless.

SGLang's own watchdog polls once a second and then kills the whole process tree, the worker with
it. The worker must instead fail its requests as migratable, log why, and leave with its own exit
code, so pidfds watched by the event loop replace it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

import msgspec


class Death(msgspec.Struct, frozen=True):
    """One engine process that is gone. ``pid`` 0: a child reported its own failure (SIGQUIT)."""

    name: str
    pid: int

    def __str__(self) -> str:
        if self.pid == 0:
            return f"{self.name} reported a fatal error"
        return f"{self.name} (pid {self.pid}) died"


class DeathWatch:
    """Calls ``on_death`` once, for the first engine process that dies. Used from one loop."""

    def __init__(self, processes: Mapping[int, str], on_death: Callable[[Death], None]) -> None:
        self._processes = dict(processes)
        self._on_death = on_death
        self._fds: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._told = False

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        for pid, name in self._processes.items():
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                loop.call_soon(self.report, Death(name, pid))
                continue
            self._fds.append(fd)
            loop.add_reader(fd, self.report, Death(name, pid))

    def report(self, death: Death) -> None:
        if self._told:
            return
        self._told = True
        self.stop()
        self._on_death(death)

    def stop(self) -> None:
        """Forget every process: the engine is about to be stopped on purpose."""
        fds, self._fds = self._fds, []
        self._told = True
        for fd in fds:
            if self._loop is not None:
                self._loop.remove_reader(fd)
            os.close(fd)
