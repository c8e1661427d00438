"""Exit codes of the release, and the errors that lead to them."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    DONE = 0  # every Pod is replaced, or there was nothing to do
    REFUSED = 1  # a Pod could not be drained or stopped; it serves again
    USAGE = 2
    NOT_REPLACED = 3  # a replacement does not serve in time
    UNREACHABLE = 4  # the Kubernetes API does not answer or forbids it
    OUT_OF_SERVICE = 5  # a drained Pod could not be resumed: it needs a person
    INTERRUPTED = 130


class ReleaseError(Exception):
    """One sentence for the operator, and the code to leave with."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
