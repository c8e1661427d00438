"""The fixed routes ``/engine/control/*``: one table, strict bodies, failures as 4xx and 5xx."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from sglang_worker.system.argument_checks import EngineFacts, check_arguments
from sglang_worker.system.binding import LifecycleRole
from sglang_worker.system.configured import BodyLimits, access_of, carry_out
from sglang_worker.system.conversion import RecordField
from sglang_worker.system.envelope import envelope
from sglang_worker.system.faults import BadRequest, RouteFault
from sglang_worker.system.json_schema import object_schema
from sglang_worker.system.lifecycle_port import Guard, LifecyclePort
from sglang_worker.system.routes import Call, Handler, Reply, Route
from sglang_worker.system.state import RouteSpec
from sglang_worker.system.typed_request import TypedRequest, checked_arguments

PREFIX = "/engine/control/"


class EngineCalls(Protocol):
    """SGLang's maintenance calls (`engine.control.EngineControl`): its result object, or raises."""

    async def start_profile(self, body: Mapping[str, Any]) -> Any: ...
    async def stop_profile(self) -> Any: ...
    async def flush_cache(self) -> Any: ...
    async def update_weights_from_disk(self, body: Mapping[str, Any]) -> Any: ...
    async def update_weights_from_tensor(self, body: Mapping[str, Any]) -> Any: ...
    async def update_weights_from_distributed(self, body: Mapping[str, Any]) -> Any: ...
    async def update_weights_from_ipc(self, body: Mapping[str, Any]) -> Any: ...
    async def update_weight_version(self, body: Mapping[str, Any]) -> Any: ...


class Operation(msgspec.Struct, frozen=True):
    """One engine call. ``request`` is SGLang's request class, None for no body.

    ``done`` completes a result that says nothing itself. A refusal by SGLang's own result is
    ``refusal_status``; an exception of SGLang is 500, a ValueError 400.
    """

    name: str
    summary: str
    request: str | None = None
    hidden: tuple[str, ...] = ()
    defaults: tuple[tuple[str, Any], ...] = ()
    done: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    refusal_status: int = 400
    error_status: int = 500


def _said(message: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    return lambda _body: {"status": "ok", "message": message}


def _version_set(body: Mapping[str, Any]) -> dict[str, Any]:
    version = body["new_version"]
    return {
        "success": True,
        "message": f"Weight version updated to {version}",
        "new_version": version,
    }


OPERATIONS = (
    Operation(
        "start_profile",
        "start SGLang's profiler",
        request="ProfileReq",
        hidden=("req_type",),
        done=_said("Profiling started"),
        error_status=409,  # SGLang raises when profiling is under way already
    ),
    Operation(
        "stop_profile",
        "stop the profiler and write the traces",
        done=_said("Profiling stopped"),
        error_status=409,
    ),
    Operation(
        "update_weights_from_disk",
        "load weights from a path",
        request="UpdateWeightFromDiskReqInput",
    ),
    Operation(
        "update_weights_from_tensor",
        "load weights from serialized tensors (unpickles its input)",
        request="UpdateWeightsFromTensorReqInput",
    ),
    Operation(
        "update_weights_from_distributed",
        "receive weights over a process group",
        request="UpdateWeightsFromDistributedReqInput",
    ),
    Operation(
        "update_weights_from_ipc",
        "receive weights from a checkpoint engine (unpickles its input)",
        request="UpdateWeightsFromIPCReqInput",
    ),
    Operation(
        "update_weight_version",
        "change the reported weight version; aborts requests only when asked to",
        request="UpdateWeightVersionReqInput",
        defaults=(("abort_all_requests", False),),
        done=_version_set,
    ),
    Operation(
        "flush_cache", "empty the prefix cache; refused while requests run", refusal_status=409
    ),
)

LIFECYCLE_ROUTES = {
    LifecycleRole.PAUSE: "pause generation and withdraw",
    LifecycleRole.CONTINUE: "continue generation and register",
    LifecycleRole.RELEASE: "release memory; needs an idle worker",
    LifecycleRole.RESUME_MEMORY: "take released memory back",
}
_LIFECYCLE_REQUESTS = {
    LifecycleRole.PAUSE: "PauseGenerationReqInput",
    LifecycleRole.CONTINUE: "ContinueGenerationReqInput",
    LifecycleRole.RELEASE: "ReleaseMemoryOccupationReqInput",
    LifecycleRole.RESUME_MEMORY: "ResumeMemoryOccupationReqInput",
}
# SGLang's message base carries these; no control route has a use for them.
_NEVER_ACCEPTED = ("rid",)
_INTERNAL = ("rid", "http_worker_ipc")


def control_routes(
    calls: EngineCalls,
    lifecycle: LifecyclePort,
    guard: Guard,
    request_class: Callable[[str], type],
    limits: BodyLimits,
    facts: EngineFacts,
) -> list[Route]:
    """All fixed control routes. ``request_class`` finds SGLang's request classes by name;
    ``facts`` are those of the running engine."""
    one_at_a_time = asyncio.Lock()
    routes = [
        _operation_route(
            operation,
            getattr(calls, operation.name),
            guard,
            _fields(operation.request, operation.hidden, request_class),
            limits,
            facts,
            one_at_a_time,
        )
        for operation in OPERATIONS
    ]
    return routes + [
        _lifecycle_route(role, summary, lifecycle, guard, request_class, limits)
        for role, summary in LIFECYCLE_ROUTES.items()
    ]


def _operation_route(
    operation: Operation,
    method: Callable[..., Any],
    guard: Guard,
    fields: Mapping[str, RecordField],
    limits: BodyLimits,
    facts: EngineFacts,
    one_at_a_time: asyncio.Lock,
) -> Route:
    async def handle(call: Call) -> Reply:
        # No body would be accepted now, so what is wrong with this one does not matter.
        _refuse(guard, operation.name)
        body = {**dict(operation.defaults), **checked_arguments(call.body, fields, "field")}
        check_arguments(operation.name, body, facts)
        async with one_at_a_time:
            # Again: the lifecycle may have moved on while another operation ran.
            _refuse(guard, operation.name)
            return await _run(operation, method, body)

    return _route(operation.name, operation.summary, handle, fields, limits)


def _refuse(guard: Guard, operation: str) -> None:
    """Raises RouteFault when the lifecycle does not allow the operation now."""
    if (refusal := guard(operation)) is not None:
        raise RouteFault(409, refusal)


async def _run(operation: Operation, method: Callable[..., Any], body: dict[str, Any]) -> Reply:
    try:
        result = await (method() if operation.request is None else method(body))
    except RouteFault:
        raise
    except ValueError as error:
        raise RouteFault(400, str(error)) from error
    except Exception as error:
        raise RouteFault(operation.error_status, _message(error)) from error
    value = {name: item for name, item in envelope(result).items() if name not in _INTERNAL}
    if value.get("success") is False:
        message = str(value.get("message") or f"SGLang refused {operation.name}")
        return Reply(operation.refusal_status, {**value, "error": message})
    return Reply(200, value if operation.done is None else operation.done(body))


def _message(error: Exception) -> str:
    return str(error) or type(error).__name__


def _lifecycle_route(
    role: LifecycleRole,
    summary: str,
    lifecycle: LifecyclePort,
    guard: Guard,
    request_class: Callable[[str], type],
    limits: BodyLimits,
) -> Route:
    fields = _fields(_LIFECYCLE_REQUESTS[role], (), request_class)

    async def handle(call: Call) -> Reply:
        try:
            body = checked_arguments(call.body, fields, "field")
        except BadRequest:
            # A body that fits gets the lifecycle's own answer, which says more.
            _refuse(guard, role.value)
            raise
        return await carry_out(role, body, lifecycle)

    return _route(role.value, summary, handle, fields, limits)


def _fields(
    request: str | None, hidden: tuple[str, ...], request_class: Callable[[str], type]
) -> dict[str, RecordField]:
    if request is None:
        return {}
    left_out = {*hidden, *_NEVER_ACCEPTED}
    fields = TypedRequest(request_class(request)).fields
    return {name: field for name, field in fields.items() if name not in left_out}


def _route(
    name: str,
    summary: str,
    handler: Handler,
    fields: Mapping[str, RecordField],
    limits: BodyLimits,
) -> Route:
    return Route(
        spec=RouteSpec(
            path=PREFIX + name,
            methods=("POST",),
            access=access_of(name),
            body_limit_bytes=limits.of(name),
            summary=summary,
        ),
        handler=handler,
        schema=object_schema(fields, accepts_more=False),
    )
