"""The configured routes as entries of the route table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sglang_worker.redaction import redact
from sglang_worker.system.argument_checks import EngineFacts, check_arguments
from sglang_worker.system.binding import (
    UNPICKLING_METHODS,
    WEIGHT_METHODS,
    BoundMethod,
    LifecycleRole,
)
from sglang_worker.system.bridge import SyncBridge
from sglang_worker.system.envelope import envelope
from sglang_worker.system.faults import RouteFault
from sglang_worker.system.grammar import SERVER_INFO_PATH
from sglang_worker.system.json_schema import object_schema
from sglang_worker.system.lifecycle_port import Guard, LifecyclePort
from sglang_worker.system.routes import ORDINARY_METHODS, Call, Handler, Reply, Route
from sglang_worker.system.state import Access, RouteSpec

# They would write to or run on memory that may be released; under any path the lifecycle is asked.
USES_MEMORY = WEIGHT_METHODS | {
    "update_weights_from_disk",
    "generate",
    "async_generate",
    "encode",
    "async_encode",
}


class BodyLimits:
    """``plain_bytes`` for most routes, ``weights_bytes`` where weights travel."""

    def __init__(self, plain_bytes: int, weights_bytes: int) -> None:
        self._plain_bytes = plain_bytes
        self._weights_bytes = weights_bytes

    def of(self, method: str) -> int:
        return self._weights_bytes if method in WEIGHT_METHODS else self._plain_bytes


def access_of(method: str) -> Access:
    return Access.UNPICKLES if method in UNPICKLING_METHODS else Access.TOKEN


def configured_routes(
    bound: Iterable[BoundMethod],
    bridge: SyncBridge,
    lifecycle: LifecyclePort,
    limits: BodyLimits,
    facts: EngineFacts,
    guard: Guard,
) -> list[Route]:
    """One route per descriptor; ``server_info`` is built in and left out here."""
    return [
        _route(method, bridge, lifecycle, limits, facts, guard)
        for method in bound
        if method.resolved.descriptor.path != SERVER_INFO_PATH
    ]


def _route(
    bound: BoundMethod,
    bridge: SyncBridge,
    lifecycle: LifecyclePort,
    limits: BodyLimits,
    facts: EngineFacts,
    guard: Guard,
) -> Route:
    resolved = bound.resolved
    method = resolved.descriptor.method
    role = resolved.role
    handler = (
        _plain_handler(bound, bridge, facts, guard)
        if role is None
        else _lifecycle_handler(bound, role, lifecycle)
    )
    return Route(
        spec=RouteSpec(
            path=f"/engine/{resolved.descriptor.path}",
            methods=ORDINARY_METHODS,
            access=access_of(method),
            body_limit_bytes=limits.of(method),
            target=resolved.target_name,
            summary=f"configured: {resolved.target_name}",
        ),
        handler=handler,
        schema=object_schema(resolved.plan.fields(), accepts_more=resolved.plan.accepts_more),
    )


def _plain_handler(
    bound: BoundMethod, bridge: SyncBridge, facts: EngineFacts, guard: Guard
) -> Handler:
    resolved = bound.resolved
    method = resolved.descriptor.method

    async def handle(call: Call) -> Reply:
        if method in USES_MEMORY and (refusal := guard(method)) is not None:
            raise RouteFault(409, refusal)
        check_arguments(method, resolved.plan.checked(call.body), facts)
        result = await bound.invoke(call.body, bridge)
        # Whatever the alias: results can hold server arguments, and those hold secrets.
        return Reply(200, redact(envelope(result)))

    return handle


def _lifecycle_handler(
    bound: BoundMethod, role: LifecycleRole, lifecycle: LifecyclePort
) -> Handler:
    """The same effect as the fixed route; the answer is the method's own result."""

    async def handle(call: Call) -> Reply:
        checked = bound.resolved.plan.checked(call.body)
        answer = await carry_out(role, checked, lifecycle)
        if answer.status >= 300:
            return answer
        return Reply(200, envelope(answer.result))

    return handle


class LifecycleReply(Reply, frozen=True):
    """A lifecycle answer with SGLang's own return value."""

    result: Any = None


async def carry_out(
    role: LifecycleRole, body: Mapping[str, Any], lifecycle: LifecyclePort
) -> LifecycleReply:
    """Let the lifecycle run one of the methods that change what the worker may serve."""
    operations = {
        LifecycleRole.PAUSE: lifecycle.pause,
        LifecycleRole.CONTINUE: lifecycle.continue_,
        LifecycleRole.RELEASE: lifecycle.release,
        LifecycleRole.RESUME_MEMORY: lifecycle.resume_memory,
    }
    answer = await operations[role](body)
    return LifecycleReply(answer.status, answer.body, answer.result)
