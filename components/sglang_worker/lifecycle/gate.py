"""The admission gate: the first statement of every business handler.

A small object behind one lock, with no asyncio in it: a request is admitted or refused whatever a
control call is holding, and from whatever thread it arrives on. The closing deadline is compared
with the clock at ingress, inside the lock, so no timer has to fire for the gate to be shut.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import msgspec


class LateRequest(Exception):
    """Admission is closed. The handler turns it into Dynamo's ``WorkerUnavailable`` before its
    first chunk, so that the frontend offers the request to another worker."""


class GateView(msgspec.Struct, frozen=True):
    """One consistent reading. ``epoch`` grows with every `AdmissionGate.open`: a reading of an
    older epoch says nothing about the gate as it is now."""

    closed: bool
    in_flight: int
    epoch: int


class GateCounts(msgspec.Struct, frozen=True):
    """Since the process began. Probes are in neither."""

    admitted: int
    rejected_late: int


class Ticket:
    """One admitted request. Releasing twice counts once; usable as a context manager."""

    __slots__ = ("_gate",)

    def __init__(self, gate: AdmissionGate | None) -> None:
        self._gate = gate

    def release(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate._leave()

    def __enter__(self) -> Ticket:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class AdmissionGate:
    """Open or closed, a deadline (seconds of ``clock``) and the number of admitted requests."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._deadline_s: float | None = None
        self._in_flight = 0
        self._epoch = 0
        self._admitted = 0
        self._rejected_late = 0

    def admit(self, *, probe: bool = False) -> Ticket:
        """Admit one request or raise `LateRequest`. Health probes always pass, uncounted."""
        if probe:
            return Ticket(None)
        with self._lock:
            if self._is_closed():
                self._rejected_late += 1
                raise LateRequest("this worker is draining and admits no new requests")
            self._in_flight += 1
            self._admitted += 1
        return Ticket(self)

    def close_at(self, deadline_s: float) -> None:
        """Close when the clock reaches ``deadline_s``. An earlier deadline already set stays."""
        with self._lock:
            if self._deadline_s is None or deadline_s < self._deadline_s:
                self._deadline_s = deadline_s

    def close(self) -> None:
        with self._lock:
            self._closed = True

    def open(self) -> int:
        """Admit again, forget any deadline; returns the new epoch."""
        with self._lock:
            self._closed = False
            self._deadline_s = None
            self._epoch += 1
            return self._epoch

    def view(self) -> GateView:
        with self._lock:
            return GateView(self._is_closed(), self._in_flight, self._epoch)

    def counts(self) -> GateCounts:
        with self._lock:
            return GateCounts(self._admitted, self._rejected_late)

    @property
    def in_flight(self) -> int:
        return self.view().in_flight

    @property
    def closed(self) -> bool:
        return self.view().closed

    @property
    def closing(self) -> bool:
        """A deadline is set, passed or not."""
        with self._lock:
            return self._deadline_s is not None

    @property
    def closes_in_s(self) -> float:
        """Seconds until the deadline; infinite without one, 0 or less when it has passed."""
        with self._lock:
            return float("inf") if self._deadline_s is None else self._deadline_s - self._clock()

    def _is_closed(self) -> bool:
        # The deadline latches: once anyone has seen it pass, only open() admits again.
        if not self._closed and self._deadline_s is not None:
            self._closed = self._clock() >= self._deadline_s
        return self._closed

    def _leave(self) -> None:
        with self._lock:
            self._in_flight -= 1
