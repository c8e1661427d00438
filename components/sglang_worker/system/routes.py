"""The worker's route table: finds the route, checks the body, answers, and logs."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from sglang_worker.errors import ConfigError
from sglang_worker.system import audit
from sglang_worker.system.app import EngineRequest, EngineResponse
from sglang_worker.system.envelope import encode, to_json
from sglang_worker.system.faults import RouteFault
from sglang_worker.system.json_body import parse_object
from sglang_worker.system.openapi import document
from sglang_worker.system.state import Catalog, RouteSpec

logger = logging.getLogger(__name__)

UNKNOWN_PATH = "unknown"
"""Stands in counts for every path that is no route."""
ORDINARY_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


class Reply(msgspec.Struct, frozen=True):
    """Status and a JSON value (anything `to_json` takes)."""

    status: int
    value: Any


class Call(msgspec.Struct, frozen=True):
    """One request with its parsed body; ``rest`` is the path below a prefix route."""

    request: EngineRequest
    body: dict[str, Any]
    rest: str = ""


Handler = Callable[[Call], Awaitable[Reply]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """``changes_state``: audited, but for the methods that only read, ``reads``.
    ``schema``: JSON schema of the body, for the document."""

    spec: RouteSpec
    handler: Handler
    changes_state: bool = True
    reads: tuple[str, ...] = ()
    schema: dict[str, Any] | None = None


class Description(msgspec.Struct, frozen=True):
    """What the catalog shows besides the routes."""

    model: str | None = None
    runners: list[dict[str, Any]] = []


class RouteTable:
    """The `EngineApp` of a worker. Routes are fixed; the description may change."""

    def __init__(self, routes: Iterable[Route], description: Description | None = None) -> None:
        self._routes: dict[str, Route] = {}
        for route in routes:
            if route.spec.path in self._routes:
                raise ConfigError(f"two routes claim {route.spec.path}")
            self._routes[route.spec.path] = route
        self.description = description or Description()
        # Answers by route (never a path that a caller made up) and status.
        self.answered: Counter[tuple[str, int]] = Counter()

    @property
    def routes(self) -> tuple[Route, ...]:
        return tuple(self._routes.values())

    def catalog(self) -> Catalog:
        specs = tuple(route.spec for route in self._routes.values())
        return Catalog(
            routes=specs,
            openapi=document(list(self._routes.values())),
            runners=self.description.runners,
            model=self.description.model,
        )

    def refused(self, method: str, path: str, remote: str, status: int) -> None:
        self._count(self._find(path), status)
        audit.record(method, path, remote, status)

    async def handle(self, request: EngineRequest) -> EngineResponse:
        began_s = time.monotonic()
        route = self._find(request.path)
        reply = await self._reply(route, request)
        self._count(route, reply.status)
        if route is not None and route.changes_state and request.method not in route.reads:
            audit.record(
                request.method,
                request.path,
                request.remote,
                reply.status,
                time.monotonic() - began_s,
            )
        return EngineResponse(
            status=reply.status,
            body=encode(to_json(reply.value)),
            headers={"Content-Type": "application/json"},
        )

    async def _reply(self, route: Route | None, request: EngineRequest) -> Reply:
        if route is None:
            return Reply(404, {"error": "no such route"})
        try:
            rest = request.path[len(route.spec.path) :] if route.spec.prefix else ""
            return await route.handler(Call(request, parse_object(request.body), rest))
        except RouteFault as fault:
            return Reply(fault.status, {"error": str(fault)})
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            return Reply(500, {"error": f"{type(error).__name__}: {error}"})

    def _count(self, route: Route | None, status: int) -> None:
        self.answered[route.spec.path if route is not None else UNKNOWN_PATH, status] += 1

    def _find(self, path: str) -> Route | None:
        if exact := self._routes.get(path):
            return exact
        for route in self._routes.values():
            if route.spec.prefix and path.startswith(route.spec.path):
                return route
        return None
