"""Which requests are the runtime's own health probes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

IsProbe = Callable[[Any], bool]


def probe_test(key: str) -> IsProbe:
    """A test for the marker that the worker puts into its health payload.

    The runtime sends the payload unchanged, and a client's request never carries the field: the
    frontend builds it anew.
    """

    def is_probe(request: Any) -> bool:
        return isinstance(request, Mapping) and request.get(key) is True

    return is_probe
