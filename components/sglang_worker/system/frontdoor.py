"""What the child answers itself and what it hands on: every request of the public port.

The child holds no logic of the worker: probes and documents come from pushed values, everything
else passes through after the route's method, access and body rules were applied.
"""

from __future__ import annotations

from sglang_worker.system import access, answers, gateway_metrics, metrics_filter
from sglang_worker.system.http import HttpError, HttpRequest, HttpResponse
from sglang_worker.system.link import WorkerLink
from sglang_worker.system.protocol import Refusal, RequestHead
from sglang_worker.system.proxy import (
    DOCUMENT_TIMEOUT_S,
    PROBE_TIMEOUT_S,
    RuntimeSilent,
    RuntimeUnreachable,
    forward,
)
from sglang_worker.system.state import Access, RouteSpec

_GET = ("GET",)
LIVE = "/live"
PROBES = (LIVE, "/health")
METRICS = "/metrics"
BUILT_IN: dict[str, RouteSpec] = {
    spec.path: spec
    for spec in (
        RouteSpec(path="/live", methods=_GET, access=Access.OPEN, summary="the process lives"),
        RouteSpec(path="/health", methods=_GET, access=Access.OPEN, summary="health probe"),
        RouteSpec(path="/metrics", methods=_GET, access=Access.OPEN, summary="Prometheus metrics"),
        RouteSpec(path="/metadata", methods=_GET, access=Access.OPEN, summary="runtime metadata"),
        RouteSpec(
            path="/v1/metadata/",
            methods=_GET,
            access=Access.OPEN,
            prefix=True,
            summary="model files for frontends",
        ),
        RouteSpec(path="/startup", methods=_GET, access=Access.OPEN, summary="startup phase"),
        RouteSpec(path="/ready", methods=_GET, access=Access.OPEN, summary="serving and healthy"),
        RouteSpec(path="/engine", methods=_GET, access=Access.OPEN, summary="state and routes"),
        RouteSpec(
            path="/engine/openapi.json", methods=_GET, access=Access.OPEN, summary="this document"
        ),
    )
}
STATUS_PATH = "/engine/status"
_WORKER_AREAS = ("/engine/", "/v1/loras")
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class FrontDoor:
    """The handler of the child's HTTP server."""

    def __init__(
        self, link: WorkerLink, tokens: access.TokenFile | None, buffer_bytes: int
    ) -> None:
        self._link = link
        self._tokens = tokens
        self._free_bytes = buffer_bytes

    async def handle(self, request: HttpRequest) -> HttpResponse:
        spec = self._find(request.path)
        self._check_method(spec, request.method)
        if request.method == "OPTIONS":
            return HttpResponse(status=204, headers={"Allow": _allowed(spec)})
        try:
            access.check(spec, request.remote, request.headers, self._tokens)
        except HttpError as error:
            self._tell_refusal(request, error.status)
            raise
        if spec.path in BUILT_IN:
            return await self._built_in(spec, request)
        if spec.path == STATUS_PATH:
            return answers.status(self._link)
        return await self._pass_on(spec, request)

    def _find(self, path: str) -> RouteSpec:
        if found := BUILT_IN.get(path):
            return found
        catalog = self._link.catalog
        specs = (*BUILT_IN.values(), *(catalog.routes if catalog else ()))
        for spec in specs:
            if spec.path == path or (
                spec.prefix and path.startswith(spec.path) and path != spec.path
            ):
                return spec
        if catalog is None and path.startswith(_WORKER_AREAS):
            raise HttpError(
                503, f"the worker is starting ({self._link.phase.value})", {"Retry-After": "1"}
            )
        raise HttpError(404, "no such route; GET /engine lists the routes of this worker")

    def _check_method(self, spec: RouteSpec, method: str) -> None:
        if method in (*spec.methods, "OPTIONS") or (method == "HEAD" and "GET" in spec.methods):
            return
        raise HttpError(
            405, f"{method} is not allowed here; use {_allowed(spec)}", {"Allow": _allowed(spec)}
        )

    async def _built_in(self, spec: RouteSpec, request: HttpRequest) -> HttpResponse:
        if spec.path == "/startup":
            return answers.startup(self._link)
        if spec.path == "/ready":
            return await answers.ready(self._link, request)
        if spec.path == "/engine":
            return answers.overview(self._link, tuple(BUILT_IN.values()), request)
        if spec.path == "/engine/openapi.json":
            return answers.openapi(self._link)
        return await self._forward(spec, request)

    async def _forward(self, spec: RouteSpec, request: HttpRequest) -> HttpResponse:
        """The runtime's own answer; ours before its server exists and after it closed."""
        state = self._link.state
        probe = spec.path in PROBES
        if spec.path == LIVE and not state.started:
            # The runtime calls a worker dead that only warms up; `/startup` bounds a long start.
            return answers.without_runtime(LIVE, "starting")
        if state.runtime is None or state.runtime_closed:
            return answers.without_runtime(spec.path, "closed" if state.runtime else "starting")
        try:
            timeout_s = PROBE_TIMEOUT_S if probe else DOCUMENT_TIMEOUT_S
            names = metrics_filter.wanted(request.query) if spec.path == METRICS else frozenset()
            if names or (spec.path == METRICS and state.gateways):
                request = request.without("accept-encoding")
            answer = await forward(state.runtime, request, timeout_s)
            if spec.path == METRICS and state.gateways:
                answer = await gateway_metrics.joined(answer, state.gateways, request)
            return await metrics_filter.selected(answer, names) if names else answer
        except RuntimeUnreachable:
            return answers.without_runtime(spec.path, "closed")
        except RuntimeSilent:
            raise HttpError(503 if probe else 504, "the worker process does not answer") from None

    async def _pass_on(self, spec: RouteSpec, request: HttpRequest) -> HttpResponse:
        reserved = self._reserve(spec, request)
        try:
            body = await request.read_body(spec.body_limit_bytes)
            head = RequestHead(
                method=request.method,
                path=request.path,
                query=request.query,
                remote=request.remote,
                body_bytes=len(body),
            )
            answer, content = await self._link.call(head, body)
        except HttpError as error:
            self._tell_refusal(request, error.status)
            raise
        finally:
            self._free_bytes += reserved
        return HttpResponse(status=answer.status, body=content, headers=answer.headers)

    def _reserve(self, spec: RouteSpec, request: HttpRequest) -> int:
        """Account for a body before reading it, so that many large ones cannot exhaust memory."""
        declared = request.declared_length
        chunked = "transfer-encoding" in request.headers
        needed = declared if declared is not None else (spec.body_limit_bytes if chunked else 0)
        if needed > spec.body_limit_bytes:
            needed = 0  # refused with 413 without reading it
        if needed > self._free_bytes:
            raise HttpError(
                503, "too many large request bodies at once; try again", {"Retry-After": "1"}
            )
        self._free_bytes -= needed
        return needed

    def _tell_refusal(self, request: HttpRequest, status: int) -> None:
        if request.method not in _SAFE_METHODS:
            self._link.tell_refusal(
                Refusal(
                    method=request.method, path=request.path, remote=request.remote, status=status
                )
            )


def _allowed(spec: RouteSpec) -> str:
    methods = list(spec.methods)
    if "GET" in methods:
        methods.insert(methods.index("GET") + 1, "HEAD")
    return ", ".join([*methods, "OPTIONS"])
