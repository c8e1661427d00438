"""What can be wrong with a request, said before SGLang sees it.

Pure values: `workers.failures` turns them into the exceptions that Dynamo's frontend maps to HTTP.
"""

from __future__ import annotations


class InvalidRequest(Exception):
    """The client's fault: answered with 400 and a message that names the field."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class RefusedByEngine(Exception):
    """SGLang ended the request with an error of its own; ``status`` is an HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class EndedByEngine(Exception):
    """SGLang ended the request although neither the client nor the request was at fault: paused
    with abort, shut down, or dead. Another worker can take over from the tokens sent so far."""
