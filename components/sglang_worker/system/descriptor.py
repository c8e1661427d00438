"""One configurable route: ``<path>[=<method>][:engine|tm]`` (reference document, Engine Routes)."""

from __future__ import annotations

from typing import Literal

import msgspec


class RouteDescriptor(msgspec.Struct, frozen=True):
    path: str
    method: str
    target: Literal["engine", "tm"]
    text: str  # as the operator wrote it, for error messages
