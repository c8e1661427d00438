"""Engine calls that one process cannot make for several: refused by name.

SGLang locks a tokenizer against weight updates, and holds arrivals during a pause, per process; the
others would go on sending. An update with requests in flight elsewhere ends the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

ALLOWED = frozenset({"start_profile", "stop_profile", "flush_cache"})
"""Control routes that ask the schedulers alone; SGLang refuses a flush while requests run."""
CONFIGURABLE = frozenset(
    {
        *ALLOWED,
        "get_server_info",
        "get_internal_state",
        "get_load",
        "get_loads",
        "get_weights_by_name",
        "check_weights",
    }
)
"""Methods that ``--engine-route`` may name beside several gateways."""
WHY = (
    "is not offered with --gateway-workers above 1: it would take effect in one of several "
    "processes that send requests to this engine"
)


class Refusal(msgspec.Struct, frozen=True):
    """`system.lifecycle_port.LifecycleAnswer`."""

    status: int
    body: dict[str, Any]
    result: Any = None


class NoLifecycle:
    """`system.lifecycle_port.GuardedLifecycle` of the main process: every operation is refused."""

    def guard(self, operation: str) -> str | None:
        return None if operation in ALLOWED else f"{operation} {WHY}"

    async def drain(self) -> Refusal:
        return _refusal("drain")

    async def resume(self) -> Refusal:
        return _refusal("resume")

    async def pause(self, body: Mapping[str, Any]) -> Refusal:
        return _refusal("pause_generation")

    async def continue_(self, body: Mapping[str, Any]) -> Refusal:
        return _refusal("continue_generation")

    async def release(self, body: Mapping[str, Any]) -> Refusal:
        return _refusal("release_memory_occupation")

    async def resume_memory(self, body: Mapping[str, Any]) -> Refusal:
        return _refusal("resume_memory_occupation")


def _refusal(operation: str) -> Refusal:
    return Refusal(409, {"error": f"{operation} {WHY}"})
