"""The worker's built-in routes besides the control routes: lifecycle and server_info."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sglang_worker.system.faults import BadRequest
from sglang_worker.system.frontdoor import STATUS_PATH
from sglang_worker.system.lifecycle_port import LifecycleAnswer, LifecyclePort
from sglang_worker.system.routes import Call, Reply, Route
from sglang_worker.system.server_info import ServerInfo
from sglang_worker.system.state import Access, RouteSpec

_EMPTY_OBJECT = {"type": "object", "additionalProperties": False}


def lifecycle_routes(lifecycle: LifecyclePort) -> list[Route]:
    """Status, drain and resume; only workers that can be drained have them."""
    return [
        Route(
            spec=RouteSpec(
                path=STATUS_PATH,
                methods=("GET",),
                access=Access.OPEN,
                summary="worker id, lifecycle state and reason",
            ),
            handler=_answered_by_the_child,
            changes_state=False,
        ),
        _transition("drain", "withdraw, then close admission", lifecycle.drain),
        _transition("resume", "cancel a drain; open and register", lifecycle.resume),
    ]


def server_info_route(info: ServerInfo) -> Route:
    async def handle(call: Call) -> Reply:
        if call.body:
            raise BadRequest("server_info takes no arguments")
        return Reply(200, await info.read())

    return Route(
        spec=RouteSpec(
            path="/engine/server_info",
            methods=("GET", "POST"),
            summary="SGLang's configuration and state, and the runner report",
        ),
        handler=handle,
        changes_state=False,
        schema=_EMPTY_OBJECT,
    )


def _transition(
    name: str, summary: str, transition: Callable[[], Awaitable[LifecycleAnswer]]
) -> Route:
    async def handle(call: Call) -> Reply:
        if call.body:
            raise BadRequest(f"{name} takes no body or an empty JSON object")
        answer = await transition()
        return Reply(answer.status, answer.body)

    return Route(
        spec=RouteSpec(path=f"/engine/{name}", methods=("POST",), summary=summary),
        handler=handle,
        schema=_EMPTY_OBJECT,
    )


async def _answered_by_the_child(_call: Call) -> Reply:
    """Never reached: the child answers status from the pushed state."""
    return Reply(503, {"error": "the listener answers this route itself"})
