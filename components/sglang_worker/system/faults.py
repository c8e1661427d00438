"""Faults of a call that are the caller's to see: a status and one sentence."""

from __future__ import annotations


class RouteFault(Exception):
    """Answered with ``status`` and ``{"error": message}``."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BadRequest(RouteFault):
    """The body does not fit the route; the message names the field."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message)
