"""How many response streams wait for their readers, for metrics and the log.

Each costs a sleeping thread (`engine.egress`), and ai-dynamo 1.6.1 offers no way to take one back:
neither stopping the request nor closing its sink makes a ``send`` that waits return, only the
reader can. So there is no limit but the number of open streams, and people have to be told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger(__name__)

MANY = 256
"""Containers often allow 1,024 threads or more; a worker needs some fifty besides these."""
TELL_EVERY_S = 60.0


class StallCounts:
    """Over all endpoints of the process; from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told_s = float("-inf")
        self.streams = 0

    def began(self) -> None:
        with self._lock:
            self.streams += 1
            streams, now_s = self.streams, self._clock()
            tell = streams >= MANY and now_s - self._told_s >= TELL_EVERY_S
            if tell:
                self._told_s = now_s
        if tell:
            logger.warning(
                "%d answers wait for readers that have fallen behind, a thread each: is a "
                "frontend stopped or cut off?",
                streams,
            )

    def ended(self) -> None:
        with self._lock:
            self.streams -= 1


STALLS = StallCounts()
"""Those of this process."""
