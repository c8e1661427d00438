"""What a person sees while the demo works: one line per step, with the seconds it took."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_QUIET_INTERVAL_S = 5.0
_LIVE_INTERVAL_S = 0.25


class Progress:
    """On a terminal the current step is a live line; elsewhere a line now and then."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._interval_s = _LIVE_INTERVAL_S if self._live else _QUIET_INTERVAL_S
        self._shown_at = 0.0
        self._shown = ""

    def say(self, text: str = "") -> None:
        self._clear()
        print(text, file=self._stream, flush=True)

    def piece(self, text: str) -> None:
        """Print a piece of a streamed answer, without a line break."""
        print(text, end="", file=self._stream, flush=True)

    def waiting(self, what: str, elapsed_s: float) -> None:
        """Show ``what`` is being waited for; a new ``what`` shows at once."""
        now = time.monotonic()
        if what == self._shown and now - self._shown_at < self._interval_s:
            return
        self._shown, self._shown_at = what, now
        line = f"  … {what} ({elapsed_s:.0f} s)"
        if self._live:
            print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)
        else:
            print(line, file=self._stream, flush=True)

    def done(self, what: str, seconds: float) -> None:
        self.say(f"  ✓ {what} ({seconds:.1f} s)")

    def _clear(self) -> None:
        if self._live and self._shown:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
        self._shown = ""
