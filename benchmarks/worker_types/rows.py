"""One row: workers, their frontend and a bare engine start together; ask, stop, compare."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from benchmarks.worker_types import workers
from benchmarks.worker_types.bare import BareEngine
from benchmarks.worker_types.parts import Part
from tests.support.stack import Stack

# What stopping a row's processes may take, the ones that hang included.
STOP_RESERVE_S = 45.0
LEAST_S = 5.0


class Row(msgspec.Struct, frozen=True):
    """``workers``: name -> flags; ``bare``: the bare engine's, None where another row's serves;
    ``device``: for all of them, on a GPU only; ``drains``: the workers have lifecycle routes."""

    model: str
    part: Part
    workers: Mapping[str, tuple[str, ...]]
    bare: tuple[str, ...] | None
    device: tuple[str, ...] = ()
    drains: bool = False

    @property
    def flags(self) -> str:
        """For the table."""
        return " / ".join(" ".join(one) for one in self.workers.values())


class Clock:
    def __init__(self, total_s: float) -> None:
        self._until_s = time.monotonic() + total_s - STOP_RESERVE_S

    @property
    def left_s(self) -> float:
        """Until what still runs has to be stopped."""
        return max(LEAST_S, self._until_s - time.monotonic())


class RowRun:
    """``flags``: of the machine and the model, for workers and engine alike."""

    def __init__(
        self, stack: Stack, wanted: Row, row: dict[str, Any], flags: tuple[str, ...], clock: Clock
    ) -> None:
        self._stack = stack
        self._wanted = wanted
        self._row = row
        self._flags = flags
        self._clock = clock
        self._began_s = time.monotonic()

    def run(self) -> None:
        """Writes everything into the row. Raises AssertionError naming all that is wrong."""
        self._row["wrong"] = []
        bare = self._start_bare()
        try:
            found = self._ask_and_stop()
            if bare is not None:
                expected = bare.answers(self._clock.left_s)
                self._note("compared_after_s")
                self._row["wrong"] += self._wanted.part.settle(self._row, found, expected)
        except Exception:
            if bare is not None:
                self._row |= bare.outcome(self._clock.left_s)
            raise
        finally:
            if bare is not None:
                bare.end()
        if self._row["wrong"]:
            raise AssertionError("; ".join(self._row["wrong"]))

    def _start_bare(self) -> BareEngine | None:
        if self._wanted.bare is None:
            return None
        flags = (*self._flags, *self._wanted.bare)
        environ = self._stack.environ()
        return BareEngine(self._stack.folder, flags, self._wanted.part.calls(), environ)

    def _ask_and_stop(self) -> list[Any]:
        name, part = self._wanted.part.model_name, self._wanted.part
        started = {
            worker: self._stack.start_worker(
                *(*self._flags, "--served-model-name", name), *flags, name=worker
            )
            for worker, flags in self._wanted.workers.items()
        }
        frontend = self._stack.start_frontend(ready_deadline_s=self._clock.left_s)
        seen: dict[str, dict[str, Any]] = {}
        self._row["workers"] = seen
        workers.watch_starts(started, seen, self._clock.left_s)
        frontend.wait_for_model(name)
        found = part.ask(frontend, self._row)
        self._note("answered_after_s")
        for worker, process in started.items():
            workers.describe(process, seen[worker])
        for worker, process in started.items():
            workers.stop(process, seen[worker])
            faults = workers.faults(worker, seen[worker], drains=self._wanted.drains)
            self._row["wrong"] += faults
        return found

    def _note(self, what: str) -> None:
        self._row[what] = round(time.monotonic() - self._began_s, 1)
