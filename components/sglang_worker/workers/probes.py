"""Which requests are health probes, and who answers them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

IsProbe = Callable[[Any], bool]
Handler = Callable[[Any, Any], AsyncIterator[Any]]


def probe_test(key: str) -> IsProbe:
    """A test for the marker that the worker puts into its health payload.

    The runtime sends the payload unchanged, and a client's request never carries the field: the
    frontend builds it anew.
    """

    def is_probe(request: Any) -> bool:
        return isinstance(request, Mapping) and request.get(key) is True

    return is_probe


def with_probes(serve: Handler, is_probe: IsProbe, answer: Handler) -> Handler:
    """``serve`` for everybody but the runtime's probes. A plain function: requests gain one call
    at their start, and nothing per chunk."""

    def handle(request: Any, context: Any) -> AsyncIterator[Any]:
        return answer(request, context) if is_probe(request) else serve(request, context)

    return handle
