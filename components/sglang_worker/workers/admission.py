"""What a handler needs of admission; `lifecycle.gate` is the real thing."""

from __future__ import annotations

from typing import Protocol


class Ticket(Protocol):
    """One admitted request, in flight until it is released. Releasing twice counts once."""

    def release(self) -> None: ...


class Admission(Protocol):
    def admit(self, *, probe: bool = False) -> Ticket:
        """Raises `lifecycle.gate.LateRequest` when closed; probes pass, uncounted."""
