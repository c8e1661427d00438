"""Exit codes of ``sglang-worker ctl`` and the errors that lead to them."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    DONE = 0
    REFUSED = 1
    USAGE = 2
    TIMEOUT = 3
    UNREACHABLE = 4
    INTERRUPTED = 130  # Ctrl-C while waiting, as shells report it


class CtlError(Exception):
    """One sentence for the operator, and the code to leave with."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
