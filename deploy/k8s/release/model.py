"""What the release knows of Pods and workers: frozen values, made at the edges."""

from __future__ import annotations

from enum import Enum

import msgspec


class Pod(msgspec.Struct, frozen=True, kw_only=True):
    """``revision``: the template hash its controller stamped. ``port``: of the system listener.
    ``marked``: this program began to drain it. ``grace_s``: its termination grace period."""

    name: str
    uid: str
    address: str | None
    port: int
    revision: str | None
    created_s: float
    ready: bool
    terminating: bool
    marked: bool
    grace_s: float = 30.0


class PodSet(msgspec.Struct, frozen=True):
    """The Pods of one worker set. ``target``: the revision that replacements get, if known."""

    pods: tuple[Pod, ...]
    target: str | None = None

    def find(self, uid: str) -> Pod | None:
        return next((pod for pod in self.pods if pod.uid == uid), None)


class Kind(str, Enum):
    """What a worker's listener says about itself."""

    DRAINABLE = "drainable"
    NO_DRAIN = "no drain"  # another worker type: it stops by SIGTERM and its grace period
    STARTING = "starting"
    UNREACHABLE = "unreachable"
    FORBIDDEN = "forbidden"
    UNKNOWN = "unknown"  # something answers that is not this worker


class WorkerView(msgspec.Struct, frozen=True):
    """``state`` and ``reason`` as in `/engine/status`; ``problem`` is a sentence when not None."""

    kind: Kind
    state: str | None = None
    reason: str | None = None
    problem: str | None = None


class Verdict(str, Enum):
    """What became of one drain or resume call."""

    ACCEPTED = "accepted"
    AGAIN = "again"  # discovery did not confirm, or nobody answered
    REFUSED = "refused"


class CallResult(msgspec.Struct, frozen=True):
    verdict: Verdict
    problem: str | None = None


class Replacement(msgspec.Struct, frozen=True):
    """``serving``: the Pod is Ready, `/ready` is 200 and the worker admits requests."""

    name: str
    serving: bool
    waits_for: str = ""


class Seen(msgspec.Struct, frozen=True):
    """One Pod at one moment. ``worker`` is read only while the release needs it."""

    present: bool
    terminating: bool = False
    worker: WorkerView | None = None
    replacement: Replacement | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, each from the start of its phase. ``retry_s``: between two tries of a call that was
    not confirmed. ``margin_s``: how much longer than its grace period a Pod may take to go."""

    unreachable_s: float = 30.0
    drain_s: float = 300.0
    resume_s: float = 60.0
    replace_s: float = 1800.0
    retry_s: float = 1.0
    margin_s: float = 60.0
