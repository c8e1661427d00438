"""Bounds how often one place in the code may log. The guard is pure; the filter reads the clock.

"One message" is the place that logs it, not its text: floods differ in ids and numbers.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

LIMIT = 50
WINDOW_S = 10.0
MAX_PLACES = 1024
# One line per request was asked for by its flag.
EXEMPT = ("sglang.srt.utils.request_logger",)


class _Place:
    __slots__ = ("began_s", "dropped", "passed")

    def __init__(self, began_s: float) -> None:
        self.began_s = began_s
        self.passed = 0
        self.dropped = 0


class FloodGuard:
    """At most ``limit`` messages per place and window; the next window tells what was dropped."""

    def __init__(self, limit: int = LIMIT, window_s: float = WINDOW_S) -> None:
        self._limit = limit
        self._window_s = window_s
        self._places: OrderedDict[Hashable, _Place] = OrderedDict()

    def admit(self, place: Hashable, now_s: float) -> int | None:
        """None: drop it. Else how many of the same place were dropped since the last one passed."""
        state = self._places.get(place)
        if state is None:
            state = self._places[place] = _Place(now_s)
            if len(self._places) > MAX_PLACES:
                self._places.popitem(last=False)
        self._places.move_to_end(place)
        if now_s - state.began_s >= self._window_s:
            state.began_s, state.passed = now_s, 0
        if state.passed >= self._limit:
            state.dropped += 1
            return None
        state.passed += 1
        dropped, state.dropped = state.dropped, 0
        return dropped


class FloodFilter(logging.Filter):
    """On a handler: records of a flooding place are dropped, and counted in its next message."""

    def __init__(
        self, guard: FloodGuard | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._guard = guard or FloodGuard()
        self._clock = clock

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(EXEMPT):
            return True
        place = (record.name, record.levelno, record.pathname, record.lineno)
        dropped = self._guard.admit(place, self._clock())
        if dropped is None:
            return False
        if dropped:
            note = f" ({dropped} more of these were not logged)"
            record.msg, record.args = record.getMessage() + note, None
        return True
