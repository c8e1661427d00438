"""When Python's oldest generation is collected: at quiet times, instead of whenever it has grown.

A full collection looks at every object of every open stream, some fifty per stream, most of them
SGLang's; with thousands of streams it stops the worker for tens of milliseconds, and a growing
number of streams triggers it again and again. Younger generations hold the objects of the last
moments only and stay automatic; nearly all of a request's garbage ends there, or by counting.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable

NEVER = 1_000_000_000
CHECK_S = 1.0
QUIET_STREAMS = 128
"""With so few the collection takes a millisecond or two."""
LEAST_S = 5.0
"""Between two collections at quiet times."""
PATIENCE_S = 600.0
"""A worker that is never quiet collects all the same: garbage in cycles must not pile up."""
YOUNGER = 10
"""Collections of the middle generation that make a full one worth while; Python's own number."""


class FullCollections:
    """Decides; `run` acts. ``younger`` counts collections of the middle generation since the last
    full one."""

    def __init__(
        self,
        streams: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        younger: Callable[[], int] = lambda: gc.get_count()[2],
    ) -> None:
        self._streams = streams
        self._clock = clock
        self._younger = younger
        self._last_s = clock()

    def due(self) -> bool:
        """Whether to collect now; True counts as collected."""
        now_s = self._clock()
        waited_s = now_s - self._last_s
        enough_s = LEAST_S if self._streams() <= QUIET_STREAMS else PATIENCE_S
        if waited_s < enough_s or self._younger() < YOUNGER:
            return False
        self._last_s = now_s
        return True

    async def run(self) -> None:
        """Until cancelled; Python's own full collections are off meanwhile."""
        before = gc.get_threshold()
        gc.set_threshold(*before[:2], NEVER)
        try:
            while True:
                await asyncio.sleep(CHECK_S)
                if self.due():
                    gc.collect()
        finally:
            gc.set_threshold(*before)
