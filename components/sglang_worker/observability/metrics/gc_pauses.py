"""How long the garbage collector stops this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Mapping

from sglang_worker.observability.metrics import definitions
from sglang_worker.observability.metrics.definitions import Reading
from sglang_worker.observability.metrics.histogram import Histogram

BOUNDS_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
GENERATIONS = 3


class GcPauses:
    """Observes from `install` on, which comes after the one long collection of a start.

    Collections never nest, so one start time is enough.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began_s: float | None = None
        self._pauses = [Histogram(BOUNDS_S) for _ in range(GENERATIONS)]
        self.longest_s = 0.0

    def install(self) -> None:
        if self.note not in gc.callbacks:
            gc.callbacks.append(self.note)

    def remove(self) -> None:
        if self.note in gc.callbacks:
            gc.callbacks.remove(self.note)

    def note(self, phase: str, details: Mapping[str, int]) -> None:
        """What `gc.callbacks` calls, in the thread that collects."""
        if phase == "start":
            self._began_s = self._clock()
        elif self._began_s is not None:
            took_s, self._began_s = self._clock() - self._began_s, None
            self._pauses[details["generation"]].observe(took_s)
            self.longest_s = max(self.longest_s, took_s)

    def read(self) -> Iterable[Reading]:
        yield (
            definitions.GC_PAUSE,
            {(str(number),): pauses for number, pauses in enumerate(self._pauses)},
        )
        yield definitions.GC_LONGEST, {(): self.longest_s}


GC_PAUSES = GcPauses()
"""The ones of this process."""
