"""Resolves configured routes against SGLang's classes, without an engine."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from sglang_worker.errors import ConfigError
from sglang_worker.system.descriptor import RouteDescriptor


def resolve_routes(routes: Iterable[RouteDescriptor]) -> list[dict[str, Any]]:
    """The plan's route entries; raises ConfigError naming the first that does not resolve."""
    routes = tuple(routes)
    targets = _load_classes({route.target for route in routes})
    return [_entry(route, targets[route.target]) for route in routes]


def _load_classes(targets: set[str]) -> dict[str, type]:
    loaders: dict[str, Callable[[], type]] = {"engine": _engine, "tm": _tokenizer_manager}
    return {target: loaders[target]() for target in targets}


def _engine() -> type:
    from sglang.srt.entrypoints.engine import Engine

    return Engine


def _tokenizer_manager() -> type:
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    return TokenizerManager


def _entry(route: RouteDescriptor, owner: type) -> dict[str, Any]:
    method = inspect.getattr_static(owner, route.method, None)
    if method is None:
        raise ConfigError(
            f"--engine-route {route.text!r}: SGLang's {owner.__name__} has no method "
            f"{route.method!r}"
        )
    bound = getattr(owner, route.method)
    if not callable(bound):
        raise ConfigError(
            f"--engine-route {route.text!r}: {route.method!r} of SGLang's {owner.__name__} is "
            "no method"
        )
    return {
        "path": f"/engine/{route.path}",
        "method": f"{owner.__name__}.{route.method}",
        "async": inspect.iscoroutinefunction(bound),
    }
