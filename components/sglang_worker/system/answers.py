"""The answers that the child gives from pushed values alone."""

from __future__ import annotations

from typing import Any

from sglang_worker.system.http import HttpError, HttpRequest, HttpResponse, json_response
from sglang_worker.system.link import WorkerLink
from sglang_worker.system.page import page_response
from sglang_worker.system.proxy import (
    PROBE_TIMEOUT_S,
    RuntimeSilent,
    RuntimeUnreachable,
    forward,
)
from sglang_worker.system.state import (
    AGE_HEADER,
    STALE_AFTER_S,
    UNRESPONSIVE_AFTER_S,
    RouteSpec,
)


def age_headers(link: WorkerLink) -> dict[str, str]:
    """Marks what is older than `STALE_AFTER_S`, so that a stale state never looks current."""
    age_s = link.age_s()
    if age_s is None or age_s <= STALE_AFTER_S:
        return {}
    return {AGE_HEADER: f"{age_s:.1f}"}


def status(link: WorkerLink) -> HttpResponse:
    state = link.state
    body: dict[str, Any] = {
        "worker_id": state.worker_id,
        "state": state.state,
        "reason": state.reason,
    }
    if state.state is None:
        body["error"] = f"the worker is starting ({link.phase.value})"
        return json_response(503, body, age_headers(link))
    return json_response(200, body, age_headers(link))


def startup(link: WorkerLink) -> HttpResponse:
    code = 200 if link.state.started else 503
    return json_response(code, {"phase": link.phase.value}, age_headers(link))


async def ready(link: WorkerLink, request: HttpRequest) -> HttpResponse:
    fault = _unready_because(link)
    if fault is None:
        fault = await _runtime_fault(link, request)
    body = {"ready": fault is None, "state": link.state.state, "reason": fault}
    return json_response(200 if fault is None else 503, body, age_headers(link))


def _unready_because(link: WorkerLink) -> str | None:
    state = link.state
    age_s = link.age_s()
    if age_s is None or not state.started:
        return f"starting ({link.phase.value})"
    if state.state not in (None, "serving"):
        return f"{state.state} ({state.reason})" if state.reason else str(state.state)
    if not state.healthy:
        return state.unhealthy_reason or "unhealthy"
    if age_s > UNRESPONSIVE_AFTER_S:
        return f"the worker has not reported for {age_s:.0f} s"
    return None


async def _runtime_fault(link: WorkerLink, request: HttpRequest) -> str | None:
    """The runtime's own health, which includes the canary requests where they are enabled."""
    address = link.state.runtime
    if address is None:
        return None
    probe = request.as_get("/health")
    try:
        answer = await forward(address, probe, PROBE_TIMEOUT_S)
    except RuntimeUnreachable:
        return "the runtime has closed its server"
    except RuntimeSilent:
        return "the worker process does not answer"
    return None if answer.status == 200 else "the runtime's health check fails"


def without_runtime(path: str, why: str) -> HttpResponse:
    """Probes and documents while the runtime's server does not exist: not yet, or no more."""
    if path == "/live":
        return json_response(200, {"status": "live", "runtime": why})
    if path == "/health":
        return json_response(503, {"status": "notready", "runtime": why})
    raise HttpError(503, f"the runtime's server is {why}")


def openapi(link: WorkerLink) -> HttpResponse:
    if link.catalog is None:
        raise HttpError(503, f"the worker is starting ({link.phase.value})", {"Retry-After": "1"})
    return json_response(200, link.catalog.openapi)


def overview(
    link: WorkerLink, built_in: tuple[RouteSpec, ...], request: HttpRequest
) -> HttpResponse:
    """``GET /engine``: JSON, or the page for a browser."""
    if "text/html" in request.headers.get("accept", ""):
        return page_response()
    return json_response(200, overview_value(link, built_in), {"Vary": "Accept"})


def overview_value(link: WorkerLink, built_in: tuple[RouteSpec, ...]) -> dict[str, Any]:
    state = link.state
    catalog = link.catalog
    age_s = link.age_s()
    routes = (*(catalog.routes if catalog else ()), *built_in)
    return {
        "worker_id": state.worker_id,
        "model": catalog.model if catalog else None,
        "state": state.state,
        "reason": state.reason,
        "phase": link.phase.value,
        "healthy": state.healthy,
        "unhealthy_reason": state.unhealthy_reason,
        "state_age_s": None if age_s is None else round(age_s, 3),
        "stale": age_s is None or age_s > STALE_AFTER_S,
        "details": state.details,
        "runners": catalog.runners if catalog else [],
        "routes": [_route_value(spec) for spec in routes],
    }


def _route_value(spec: RouteSpec) -> dict[str, Any]:
    return {
        "path": spec.path + ("…" if spec.prefix else ""),
        "methods": list(spec.methods),
        "access": spec.access.value,
        "target": spec.target,
        "summary": spec.summary,
    }
