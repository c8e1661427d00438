"""The vocabulary of the lifecycle: states, reasons, what is asked, what came of it, what to answer.

Values only; `machine` holds the rules and `controller` does the waiting.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec


class State(str, Enum):
    SERVING = "serving"
    PAUSED = "paused"
    DRAINING = "draining"
    DRAINED = "drained"
    STOPPING = "stopping"


class Reason(str, Enum):
    """What a drain or a shutdown waits for (reference document, "Admission and completion")."""

    ROUTING_GRACE = "routing_grace"
    UNREGISTER_PENDING = "discovery_unregister_pending"
    DYNAMO_INFLIGHT = "dynamo_inflight"
    SGLANG_INFLIGHT = "sglang_inflight"
    CHECK_UNAVAILABLE = "completion_check_unavailable"


class PausedBy(str, Enum):
    """Who paused generation: a pause that a memory release made is undone by the last resume."""

    NOBODY = "nobody"
    OPERATOR = "operator"
    RELEASE = "release"


class Ask(str, Enum):
    """What an operator or the platform asks for."""

    DRAIN = "drain"
    RESUME = "resume"
    PAUSE = "pause"
    CONTINUE = "continue"
    RELEASE = "release"
    RESUME_MEMORY = "resume_memory"
    STOP = "stop"


class Outcome(str, Enum):
    """What came of an effect."""

    WITHDRAWN = "withdrawn"
    PAUSE_FAILED = "pause_failed"
    CONTINUED = "continued"
    RELEASE_FAILED = "release_failed"
    MEMORY_RESUMED = "memory_resumed"
    WAITING = "waiting"
    COMPLETE = "complete"


class Effect(str, Enum):
    """What the controller has to do after a transition, in the order given."""

    WITHDRAW = "withdraw"
    REGISTER = "register"
    OPEN_GATE = "open_gate"
    CLOSE_GATE = "close_gate"  # when `Lifecycle.closes_at_s` comes
    PAUSE_ENGINE = "pause_engine"
    CONTINUE_ENGINE = "continue_engine"
    RELEASE_MEMORY = "release_memory"
    RESUME_MEMORY = "resume_memory"


class Event(msgspec.Struct, frozen=True):
    """One input of the machine. ``epoch`` (outcomes only) is the epoch in which the work began:
    an outcome of an older epoch belongs to an intention that was since replaced."""

    kind: Ask | Outcome
    now_s: float
    epoch: int | None = None
    in_flight: int = 0
    tags: frozenset[str] = frozenset()
    reason: Reason | None = None


class Status(msgspec.Struct, frozen=True):
    """What `/engine/status` shows; its JSON is the whole body of a 200 or 202."""

    worker_id: str
    state: State
    reason: Reason | None


class Answer(msgspec.Struct, frozen=True):
    """HTTP status and JSON body. ``result`` is SGLang's own return value, where there is one, for
    configured routes that answer with the method's result; None otherwise."""

    status: int
    body: dict[str, Any]
    result: Any = None
