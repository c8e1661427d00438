"""What the worker's objects say at a scrape. Nothing is pushed on a request's path.

A source is read on a thread of the runtime while the event loop runs, so it takes single values
and whole copies, and never waits for the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol

import msgspec

from sglang_worker.engine.egress_stalls import STALLS
from sglang_worker.lifecycle.registration import Confirmed
from sglang_worker.lifecycle.states import Reason, State
from sglang_worker.lifecycle.wiring import WorkerLifecycle
from sglang_worker.observability.metrics import definitions as d
from sglang_worker.observability.metrics.definitions import Reading
from sglang_worker.runners import gauge
from sglang_worker.runners.report import RunnerReport

# Otherwise nobody waits for the sockets, and the table of a busy worker is long.
READS_SOCKETS = frozenset({State.DRAINING, State.DRAINED, State.STOPPING})
OPERATIONS = {True: "register", False: "withdraw"}


class Source(Protocol):
    def read(self) -> Iterable[Reading]:
        """May raise: the other sources are served all the same."""


def one_hot(values: Iterable[Enum], present: Enum | None) -> dict[tuple[str, ...], int]:
    return {(str(value.value),): int(value is present) for value in values}


class WorkerSource(msgspec.Struct, frozen=True):
    """What does not depend on a lifecycle; a node that serves nothing has it, too."""

    build: tuple[str, str, str]
    model_load_s: float
    engine_up: Callable[[], bool]
    healthy: Callable[[], bool] | None

    def read(self) -> Iterable[Reading]:
        yield d.BUILD_INFO, {self.build: 1}
        yield d.ENGINE_UP, {(): int(self.engine_up())}
        yield d.HEALTHY, {} if self.healthy is None else {(): int(self.healthy())}
        yield d.MODEL_LOAD, {(): self.model_load_s}


class RunnerSource(msgspec.Struct, frozen=True):
    reports: Callable[[], Sequence[RunnerReport]]

    def read(self) -> Iterable[Reading]:
        reports = self.reports()
        yield d.RUNNER_INFO, dict.fromkeys(gauge.label_values(reports), 1)
        yield d.RUNNER_VALID, {(one.runner,): int(one.report_valid) for one in reports}
        yield (
            d.RUNNER_DIFFERENCE,
            {
                (one.runner, difference.phase, difference.reason.value): 1
                for one in reports
                for difference in one.differences
            },
        )


class LifecycleSource(msgspec.Struct, frozen=True):
    lifecycle: WorkerLifecycle

    def read(self) -> Iterable[Reading]:
        core = self.lifecycle.controller.core
        life, history, now_s = core.life, core.history, core.clock()
        yield d.STATE, one_hot(State, life.state)
        yield d.ENTERED, {(state.value,): n for state, n in history.entered.items()}
        yield (
            d.STATE_SECONDS,
            {
                (state.value, reason.value if reason else ""): seconds
                for (state, reason), seconds in history.seconds(now_s).items()
            },
        )
        yield d.WAITING, one_hot(Reason, life.reason)
        since_s = history.draining_since_s
        yield d.DRAIN_ELAPSED, {(): 0.0 if since_s is None else now_s - since_s}
        yield d.DRAIN_DURATION, {(): (history.drains, history.drains_took_s)}
        yield d.DRAINS_ABANDONED, {(): history.drains_abandoned}
        stages = self.lifecycle.watchdog.stage_seconds()
        yield d.SHUTDOWN_STAGE, {(stage,): seconds for stage, seconds in stages.items()}


class RequestSource(msgspec.Struct, frozen=True):
    lifecycle: WorkerLifecycle
    cancelled: Callable[[], int]

    def read(self) -> Iterable[Reading]:
        counts = self.lifecycle.gate.counts()
        yield d.ADMITTED, {(): counts.admitted}
        yield d.REJECTED_LATE, {(): counts.rejected_late}
        yield d.CANCELLED, {(): self.cancelled()}
        yield d.IN_FLIGHT, {(): self.lifecycle.gate.in_flight}
        probes = self.lifecycle.probes
        yield d.HELD, {(): probes.sglang_requests()}
        yield d.STALLED, {(): STALLS.streams}
        leaving = self.lifecycle.controller.state in READS_SOCKETS
        yield d.UNSENT, {(): probes.unsent_bytes()} if leaving else {}


class DiscoverySource(msgspec.Struct, frozen=True):
    lifecycle: WorkerLifecycle

    def read(self) -> Iterable[Reading]:
        core = self.lifecycle.controller.core
        registration = self.lifecycle.registration
        yield d.DESIRED, {(): int(registration.desired)}
        yield d.CONFIRMED, one_hot(Confirmed, registration.confirmed)
        failures = registration.failures
        yield d.DISCOVERY_ERRORS, {(OPERATIONS[wish],): n for wish, n in failures.items()}
        yield d.DISCOVERY_FAILING, {(): int(registration.last_error is not None)}
        at_s = registration.failed_at_s
        yield d.DISCOVERY_ERROR_AGE, {} if at_s is None else {(): core.clock() - at_s}


class RouteSource(msgspec.Struct, frozen=True):
    """``answered``: by route and status; the route table bounds the paths."""

    answered: Callable[[], Mapping[tuple[str, int], int]]

    def read(self) -> Iterable[Reading]:
        counts = dict(self.answered())
        yield d.ROUTE_CALLS, {(path, str(code)): n for (path, code), n in counts.items()}


class CacheLoad(msgspec.Struct, frozen=True):
    """One data-parallel rank; None: not known."""

    used_blocks: int | None = None
    hit_ratio: float | None = None


class CacheSource(msgspec.Struct, frozen=True):
    """``blocks``: of each rank, None when the engine does not say. Ranks that ``loads`` lacks
    have not reported yet. ``names``: model and component, for upstream's labels."""

    ranks: Sequence[int]
    blocks: int | None
    loads: Callable[[], Mapping[int, CacheLoad]]
    names: tuple[str, str]
    model_load_s: float

    def read(self) -> Iterable[Reading]:
        loads = self.loads()
        total = {rank: self.blocks for rank in self.ranks if self.blocks}
        used = {r: one.used_blocks for r, one in loads.items() if one.used_blocks is not None}
        hits = {r: one.hit_ratio for r, one in loads.items() if one.hit_ratio is not None}
        usage = {rank: used[rank] / total[rank] for rank in used.keys() & total.keys()}
        for own, theirs, values in (
            (d.KV_BLOCKS, d.UPSTREAM_BLOCKS, total),
            (d.KV_BLOCKS_USED, None, used),
            (d.HIT_RATIO, d.UPSTREAM_HIT_RATE, hits),
            (None, d.UPSTREAM_USAGE, usage),
        ):
            if own is not None:
                yield own, {(str(rank),): value for rank, value in values.items()}
            if theirs is not None:
                yield (
                    theirs,
                    {(*self.names, str(rank)): value for rank, value in values.items()},
                )
        yield d.UPSTREAM_LOAD, {self.names: self.model_load_s}
