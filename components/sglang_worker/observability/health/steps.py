"""Progress of an image or video generator, as the health judge wants to see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from sglang_worker.observability.health.judge import Reading

# Text encoding, decoding a long video and compiling show no steps. For so long after the last sign
# a running generation counts as moving; only then the judge's own patience begins.
SILENT_PHASE_S = 300.0


class StepActivity:
    """``position`` changes with every denoising step and with every new generation."""

    def __init__(
        self,
        position: Callable[[], int],
        held_requests: Callable[[], Collection[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._position = position
        self._held_requests = held_requests
        self._clock = clock
        self._held: frozenset[str] = frozenset()
        self._last = position()
        self._moved_s = clock()
        self._signs = 0

    def read(self) -> Reading:
        position, held = self._position(), frozenset(self._held_requests())
        if position != self._last or held != self._held:
            self._last, self._held, self._moved_s = position, held, self._clock()
        if held and self._clock() - self._moved_s < SILENT_PHASE_S:
            self._signs += 1
        return Reading(turns=(None,), outputs=float(self._signs), others=bool(held))

    def held_probes(self) -> int:
        return 0
