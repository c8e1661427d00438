"""What the operator sees while waiting: one line that changes, or one line per change."""

from __future__ import annotations

from typing import Any, TextIO

MEANING = {
    "routing_grace": "routers are learning of the withdrawal; requests are still admitted",
    "discovery_unregister_pending": "discovery has not confirmed the withdrawal",
    "dynamo_inflight": "admitted requests or their responses are still running",
    "sglang_inflight": "SGLang still holds requests",
    "completion_check_unavailable": "completion cannot be checked",
}


def describe(body: dict[str, Any]) -> str:
    """``draining: routers are learning …`` out of a status body."""
    state = str(body.get("state", "unknown"))
    reason = body.get("reason")
    return state if reason is None else f"{state}: {MEANING.get(str(reason), str(reason))}"


class LiveLine:
    """On a terminal the line is rewritten in place, elsewhere only changes are written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._shown = ""

    def show(self, text: str, elapsed_s: float) -> None:
        if self._live:
            self._stream.write(f"\r\x1b[K{text} ({elapsed_s:.0f} s)")
        elif text != self._shown:
            self._stream.write(f"{text} ({elapsed_s:.1f} s)\n")
        self._shown = text
        self._stream.flush()

    def end(self) -> None:
        if self._live and self._shown:
            self._stream.write("\n")
        self._shown = ""
