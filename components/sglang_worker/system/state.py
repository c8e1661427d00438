"""What the worker pushes to the listener's child: a small state often, a catalog rarely.

Both are plain values without behaviour that needs a clock; ages come from the frames' timestamps.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

STALE_AFTER_S = 2.0
"""A state older than this is marked with `AGE_HEADER`."""

UNRESPONSIVE_AFTER_S = 10.0
"""A state older than this no longer counts as ready."""

AGE_HEADER = "X-Worker-State-Age-S"


class Phase(str, Enum):
    """What ``/startup`` reports; only the last two count as started."""

    LOADING = "loading"
    COMPILING = "compiling"
    CAPTURING = "capturing"
    WARMING = "warming"
    WAITING_FOR_PEERS = "waiting for peers"
    REGISTERED = "registered"
    FOLLOWING = "following"
    """Instead of registered, on a later node of an engine: its ranks run, its leader serves."""


class RuntimeAddress(msgspec.Struct, frozen=True):
    """Where the runtime's own server listens; only the child connects to it."""

    host: str
    port: int


class GatewayState(msgspec.Struct, frozen=True, kw_only=True):
    """One of several processes that relay for the engine, as its main process knows it."""

    instance: str | None = None
    healthy: bool = False
    in_flight: int = 0
    runtime: RuntimeAddress | None = None


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot of the worker, complete in itself: a later one replaces it."""

    phase: Phase = Phase.LOADING
    started: bool = False
    """True once the worker has registered for the first time; never falls back."""
    worker_id: str | None = None
    state: str | None = None
    """Lifecycle state; None while starting, and for workers that expose no lifecycle."""
    reason: str | None = None
    healthy: bool = False
    unhealthy_reason: str | None = None
    details: dict[str, Any] = {}
    """For people: what a drain waits for, counts, seconds left."""
    runtime: RuntimeAddress | None = None
    runtime_closed: bool = False
    gateways: tuple[GatewayState, ...] = ()


class Access(str, Enum):
    """Who may call a route."""

    OPEN = "open"
    TOKEN = "token"
    """Needs the bearer token where one is configured."""
    UNPICKLES = "unpickles"
    """Like TOKEN; without a token file only loopback peers may call it."""


class RouteSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One route as the child enforces it and the catalog shows it."""

    path: str
    methods: tuple[str, ...]
    access: Access = Access.TOKEN
    body_limit_bytes: int = 1 << 20
    prefix: bool = False
    """True: ``path`` ends with '/' and every longer path below it belongs to this route."""
    summary: str = ""
    target: str | None = None
    """For configured routes: the bound method, e.g. ``tm.pause_generation``."""


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """The worker's routes and its descriptions, pushed when they are known or have changed."""

    routes: tuple[RouteSpec, ...] = ()
    openapi: dict[str, Any] = {}
    runners: list[dict[str, Any]] = []
    model: str | None = None
