"""Resolves configured routes against SGLang's classes, without an engine."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from sglang_worker.system.binding import ResolvedMethod
from sglang_worker.system.descriptor import RouteDescriptor
from sglang_worker.system.sglang_classes import resolve_configured

_OWNERS = {"engine": "Engine", "tm": "TokenizerManager"}


def resolve_routes(routes: Iterable[RouteDescriptor]) -> list[dict[str, Any]]:
    """The plan's route entries; raises ConfigError naming the first that does not resolve."""
    return [_entry(resolved) for resolved in resolve_configured(routes)]


def _entry(resolved: ResolvedMethod) -> dict[str, Any]:
    descriptor = resolved.descriptor
    return {
        "path": f"/engine/{descriptor.path}",
        "method": f"{_OWNERS[descriptor.target]}.{descriptor.method}",
        "async": inspect.iscoroutinefunction(resolved.function),
        "fields": sorted(resolved.plan.fields()),
    }
