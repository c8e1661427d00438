"""One open-ended profile at a time: SGLang's own refusal would break the profile under way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sglang_worker.system.faults import RouteFault


class Profiling(Protocol):
    async def start_profile(self, body: Mapping[str, Any]) -> Any: ...
    async def stop_profile(self) -> Any: ...


class SingleProfile:
    """Read in SGLang 0.5.23 ``scheduler_components/profiler_manager.py``: a second start drops the
    first profiler before it fails."""

    def __init__(self, calls: Profiling) -> None:
        self._calls = calls
        self._open_ended = False

    async def start_profile(self, body: Mapping[str, Any]) -> Any:
        """Raises a 409 fault, or what SGLang raises."""
        if self._open_ended:
            raise RouteFault(409, "profiling is already in progress; call stop_profile first")
        result = await self._calls.start_profile(body)
        # With a number of steps SGLang stops by itself, and nobody tells us when.
        self._open_ended = not body.get("num_steps")
        return result

    async def stop_profile(self) -> Any:
        result = await self._calls.stop_profile()
        self._open_ended = False
        return result
