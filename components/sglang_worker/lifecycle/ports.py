"""What the lifecycle needs from the rest of the worker; `wiring` connects the real things."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sglang_worker.lifecycle.states import Status


class EngineControl(Protocol):
    """SGLang's generation and memory controls. They return SGLang's own result, or raise."""

    async def pause(self, mode: str) -> Any: ...

    async def continue_(self, body: Mapping[str, Any]) -> Any: ...

    async def release_memory(self, tags: list[str]) -> Any: ...

    async def resume_memory(self, tags: list[str]) -> Any: ...


class StatePublisher(Protocol):
    """Where the state is shown. Without a system listener both do nothing."""

    def publish(self, status: Status) -> None:
        """Show it soon; never blocks."""

    async def publish_acknowledged(self, status: Status) -> None:
        """Return once the listener shows it, or was replaced by one that shows nothing older."""
