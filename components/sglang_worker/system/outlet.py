"""Where a serving process tells how it is: the listener, or in a gateway the main process."""

from __future__ import annotations

from typing import Any, Protocol

from sglang_worker.system.state import WorkerState


class StateOutlet(Protocol):
    @property
    def state(self) -> WorkerState: ...

    def publish(self, **changes: Any) -> None:
        """Change fields of `WorkerState`; nobody waits for the reader."""

    def set_runtime_address(self, host: str, port: int) -> None:
        """Of the runtime's own server."""
