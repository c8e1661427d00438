"""The lifecycle's view of the listener (`lifecycle.ports.StatePublisher`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sglang_worker.lifecycle.states import Status
from sglang_worker.system.listener import SystemListener


class ListenerPublisher:
    """Pushes lifecycle states to the listener's child.

    ``details`` is asked at every push, each heartbeat included, for what people want to see
    besides the state: what a drain waits for, counts, seconds left.
    """

    def __init__(
        self,
        listener: SystemListener,
        details: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._listener = listener
        listener.show_details(details)

    def publish(self, status: Status) -> None:
        self._listener.publish(**self._changes(status))

    async def publish_acknowledged(self, status: Status) -> None:
        await self._listener.publish_acknowledged(**self._changes(status))

    def _changes(self, status: Status) -> dict[str, Any]:
        return {
            "worker_id": status.worker_id,
            "state": status.state.value,
            "reason": status.reason.value if status.reason else None,
        }
