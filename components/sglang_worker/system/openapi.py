"""The OpenAPI document of the public port, made from the route table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sglang_worker.system.frontdoor import BUILT_IN
from sglang_worker.system.state import Access, RouteSpec

if TYPE_CHECKING:
    from sglang_worker.system.routes import Route

_ERROR = {"$ref": "#/components/schemas/Error"}
_BODYLESS = ("GET", "DELETE")
_DOCUMENTED_SEPARATELY = ("/v1/metadata/",)


def document(routes: list[Route]) -> dict[str, Any]:
    """OpenAPI 3.1 for these routes and the listener's own."""
    paths: dict[str, Any] = {}
    for spec in BUILT_IN.values():
        if spec.path not in _DOCUMENTED_SEPARATELY:
            paths[spec.path] = _path_item(spec, None)
    for route in routes:
        name = route.spec.path + ("{name}" if route.spec.prefix else "")
        paths[name] = _path_item(route.spec, route.schema)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Dynamo SGLang worker: system listener", "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {
                "Error": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}},
                    "required": ["error"],
                }
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _path_item(spec: RouteSpec, schema: dict[str, Any] | None) -> dict[str, Any]:
    item: dict[str, Any] = {
        method.lower(): _operation(spec, method, schema) for method in spec.methods
    }
    if spec.prefix:
        item["parameters"] = [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
        ]
    return item


def _operation(spec: RouteSpec, method: str, schema: dict[str, Any] | None) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}_{re.sub('[^A-Za-z0-9]+', '_', spec.path).strip('_')}",
        "summary": spec.summary,
        "responses": {
            "200": {"description": "done"},
            "202": {"description": "accepted, still under way"},
            **{
                code: {
                    "description": text,
                    "content": {"application/json": {"schema": _ERROR}},
                }
                for code, text in _FAILURES.items()
            },
        },
    }
    if spec.access is not Access.OPEN:
        operation["security"] = [{"token": []}, {}]
    if method not in _BODYLESS and schema is not None:
        operation["requestBody"] = {
            "required": bool(schema.get("required")),
            "content": {"application/json": {"schema": schema}},
        }
    return operation


_FAILURES = {
    "400": "the body does not fit the route",
    "401": "missing or wrong bearer token",
    "403": "not allowed for this peer",
    "404": "no such route",
    "405": "wrong method",
    "408": "the request did not arrive in time",
    "409": "refused in the present state",
    "413": "the body is over the limit",
    "500": "the engine failed",
    "503": "not now",
    "504": "no answer in time",
}
