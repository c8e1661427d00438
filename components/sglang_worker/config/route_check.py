"""Resolves configured routes against SGLang's classes for ``--check``, without an engine."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from sglang_worker.system.descriptor import RouteDescriptor


def resolve_routes(routes: Iterable[RouteDescriptor]) -> list[dict[str, Any]]:
    """The plan's route entries; raises ConfigError naming the first that does not resolve."""
    routes = tuple(routes)
    if not routes:
        # SGLang's engine takes seconds to import.
        return []
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    from sglang_worker.system.binding import resolve_against_classes

    names = {"engine": Engine.__name__, "tm": TokenizerManager.__name__}
    return [
        {
            "path": f"/engine/{one.descriptor.path}",
            "method": f"{names[one.descriptor.target]}.{one.descriptor.method}",
            "async": inspect.iscoroutinefunction(one.function),
            "fields": sorted(one.plan.fields()),
        }
        for one in resolve_against_classes(routes, Engine, TokenizerManager)
    ]
