"""Errors that a handler raises on purpose become one log line instead of a traceback each.

The runtime's bindings print whatever a handler raises to ``sys.stderr``, from their own threads
and piece by piece (seen in ai-dynamo 1.6.1; ``sys.excepthook`` is not asked). Most of it says how
a request should be answered, "try another worker" or "your field is wrong", and a drain under load
raises hundreds. So foreign threads write through a gate that knows a traceback when it sees one.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from sglang_worker.observability.logs.flood import FloodGuard

HEADER = "Traceback (most recent call last):\n"
MAX_HELD_CHARS = 1 << 16
MAX_MESSAGE_CHARS = 300
_SUMMARY = re.compile(r"(?P<type>[\w.]+)(?:: (?P<message>.*))?")
# Answers, not faults: Dynamo's exceptions, and tasks that the runtime itself cancelled.
_ANSWERS = re.compile(r"dynamo\.(?:_core|llm\.exceptions)\.|asyncio\.exceptions\.CancelledError$")

logger = logging.getLogger("sglang_worker.requests")


class Printed(msgspec.Struct, frozen=True):
    """One whole traceback: its text, and the last line taken apart."""

    text: str
    type: str
    message: str

    @property
    def is_answer(self) -> bool:
        return _ANSWERS.match(self.type) is not None


class TracebackReader:
    """The text of one thread, in pieces -> plain text and whole tracebacks, in order. Pure."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, piece: str) -> list[str | Printed]:
        text, self._held = self._held + piece, ""
        if not text:
            return []
        if not (text.startswith(HEADER) or HEADER.startswith(text)):
            return [text]
        printed = _whole(text)
        if printed is not None:
            return [printed, *self.feed(text[len(printed.text) :])]
        if len(text) > MAX_HELD_CHARS:
            return [text]
        self._held = text
        return []


def _whole(text: str) -> Printed | None:
    """The traceback at the beginning of ``text``, once its last line has ended."""
    end = len(HEADER)
    while (newline := text.find("\n", end)) >= 0:
        line = text[end:newline]
        end = newline + 1
        if line and not line.startswith(" "):
            found = _SUMMARY.match(line)
            kind, message = (found["type"], found["message"] or "") if found else (line, "")
            return Printed(text[:end], kind, message)
    return None


class StderrGate:
    """Stands in for ``sys.stderr``; everything but foreign threads' tracebacks passes unchanged."""

    def __init__(self, stream: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._guard = FloodGuard()
        self._local = threading.local()

    def write(self, text: str) -> int:
        if not _is_foreign(threading.current_thread()):
            self._stream.write(text)
            return len(text)
        reader = self._local.__dict__.setdefault("reader", TracebackReader())
        for part in reader.feed(text):
            if isinstance(part, str):
                self._stream.write(part)
            else:
                self._show(part)
        return len(text)

    def _show(self, printed: Printed) -> None:
        name = printed.type.rpartition(".")[2]
        if printed.is_answer:
            logger.info("a request was answered with %s: %s", name, _short(printed.message))
        elif (dropped := self._guard.admit(printed.text, self._clock())) is not None:
            note = f"({dropped} more of these were not shown)\n" if dropped else ""
            self._stream.write(printed.text + note)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _is_foreign(thread: threading.Thread) -> bool:
    """Not started by Python's threading: one of the runtime's."""
    return thread.daemon and thread.name.startswith("Dummy-")


def _short(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + "…"
