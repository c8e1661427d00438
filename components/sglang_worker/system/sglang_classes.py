"""Resolving configured routes against SGLang's classes, before or without an engine."""

from __future__ import annotations

from collections.abc import Iterable

from sglang_worker.system.binding import ResolvedMethod, resolve_against_classes
from sglang_worker.system.descriptor import RouteDescriptor


def resolve_configured(routes: Iterable[RouteDescriptor]) -> tuple[ResolvedMethod, ...]:
    """Every route with its method and call plan; loads SGLang only when there are routes.

    Raises ConfigError naming the first descriptor that cannot be served.
    """
    routes = tuple(routes)
    if not routes:
        return ()
    from sglang.srt.entrypoints.engine import Engine
    from sglang.srt.managers.tokenizer_manager import TokenizerManager

    return resolve_against_classes(routes, Engine, TokenizerManager)
