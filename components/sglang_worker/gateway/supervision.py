"""What becomes of the worker when a gateway, the engine or the operator ends something. Pure.

- A gateway that ends by itself ends the worker. The others serve on for a moment, because the
  frontends now send them the lost one's requests; then they stop by the common sequence, and the
  exit code says that it was a fault. A supervisor restarts a whole, known state; a gateway alone is
  never started again.
- A stop is passed on to every gateway, each of which drains by itself.
- The engine's death is told to every gateway, which hands its requests over at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from sglang_worker.errors import ExitCode
from sglang_worker.system.state import UNRESPONSIVE_AFTER_S, WorkerState


class Do(str, Enum):
    STOP = "stop"  # SIGTERM: its common shutdown sequence
    KILL = "kill"
    TELL_DEATH = "tell the engine's death"
    ABORT = "abort its requests in the engine"


class Order(msgspec.Struct, frozen=True):
    do: Do
    index: int


class Ending(Enum):
    STOP = "stopped"
    GATEWAY_LOST = "a gateway was lost"
    ENGINE_DIED = "the engine died"


class FleetTimes(msgspec.Struct, frozen=True):
    """``stop_s``: a gateway's whole shutdown, its own watchdog included. ``handover_s``: how long
    the others serve on when one was lost. ``death_s``: handing the requests over after the engine's
    death. ``silent_s``: without a report it is unhealthy."""

    stop_s: float
    handover_s: float = 2.0
    death_s: float = 6.0
    silent_s: float = UNRESPONSIVE_AFTER_S


class Gateway(msgspec.Struct):
    """What is known of one."""

    index: int
    state: WorkerState = WorkerState()
    held: int = 0
    heard_s: float | None = None
    code: int | None = None

    @property
    def running(self) -> bool:
        return self.code is None


class Fleet:
    """Events in, orders out. ``fault`` and ``outcome`` may be read at any time."""

    def __init__(
        self, count: int, times: FleetTimes, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.gateways = [Gateway(index) for index in range(count)]
        self._times = times
        self._clock = clock
        self._ending: Ending | None = None
        self._why = ""
        self._stop_at_s: float | None = None
        self._deadline_s: float | None = None
        self._killed = False

    # --- events -----------------------------------------------------------------------------------

    def heard(self, index: int, state: WorkerState, held: int) -> None:
        one = self.gateways[index]
        one.state, one.held, one.heard_s = state, held, self._clock()

    def ended(self, index: int, code: int) -> Sequence[Order]:
        one = self.gateways[index]
        one.code, one.held = code, 0
        orders = [Order(Do.ABORT, index)] if code else []
        if self._ending is None:
            when = "while serving" if one.state.started else "before it served"
            wait_s = self._times.handover_s if self.started else 0.0
            self._begin(
                Ending.GATEWAY_LOST,
                f"gateway {index} {_words(code)} {when}",
                wait_s + self._times.stop_s,
            )
            self._stop_at_s = self._clock() + wait_s
        return [*orders, *self.tick()]

    def stop(self) -> Sequence[Order]:
        """The operator's signal; a fault that came first keeps its exit code."""
        if self._ending is None:
            self._begin(Ending.STOP, "stopped", self._times.stop_s)
            self._stop_at_s = self._clock()
        elif self._stop_at_s is not None:
            self._stop_at_s = self._clock()
        return self.tick()

    def engine_died(self, what: str) -> Sequence[Order]:
        self._stop_at_s = None
        if self._ending is None:
            self._begin(Ending.ENGINE_DIED, f"the engine died: {what}", self._times.death_s)
        else:
            self._deadline_s = min(
                self._clock() + self._times.death_s, self._deadline_s or float("inf")
            )
        return self._to_running(Do.TELL_DEATH)

    def tick(self) -> Sequence[Order]:
        """Stops what is due, and kills what has outlived its time."""
        now_s = self._clock()
        if self._stop_at_s is not None and now_s >= self._stop_at_s:
            self._stop_at_s = None
            return self._to_running(Do.STOP)
        if self._deadline_s is None or now_s < self._deadline_s:
            return []
        self._killed = self._killed or any(one.running for one in self.gateways)
        return self._to_running(Do.KILL)

    # --- what it comes to -------------------------------------------------------------------------

    @property
    def started(self) -> bool:
        """Every gateway has registered."""
        return all(one.state.started for one in self.gateways)

    @property
    def fault(self) -> str | None:
        """Why the worker is not fit, in one sentence; None when it is."""
        if self._ending is not None and self._ending is not Ending.STOP:
            return self._why
        for one in self.gateways:
            if not one.running:
                return f"gateway {one.index} {_words(one.code or 0)}"
            if not one.state.healthy:
                return f"gateway {one.index}: {one.state.unhealthy_reason or 'starting'}"
            silent_s = self._clock() - (one.heard_s or 0.0)
            if silent_s > self._times.silent_s:
                return f"gateway {one.index} has not reported for {silent_s:.0f} s"
        return None

    @property
    def done(self) -> bool:
        return not any(one.running for one in self.gateways)

    @property
    def outcome(self) -> tuple[ExitCode, str]:
        """Once ``done``: the worker's exit code, and why in one sentence."""
        if self._ending is Ending.ENGINE_DIED:
            return ExitCode.ENGINE_DIED, self._why
        if self._ending is not Ending.STOP:
            return ExitCode.RUNTIME_FAILURE, self._why
        for one in self.gateways:
            if self._killed or one.code == ExitCode.SHUTDOWN_WATCHDOG:
                return ExitCode.SHUTDOWN_WATCHDOG, "a gateway did not stop in its time"
            if one.code:
                return (
                    ExitCode.RUNTIME_FAILURE,
                    f"gateway {one.index} {_words(one.code)} while stopping",
                )
        return ExitCode.STOPPED, self._why

    def _begin(self, ending: Ending, why: str, within_s: float) -> None:
        self._ending, self._why = ending, why
        self._deadline_s = self._clock() + within_s

    def _to_running(self, do: Do) -> list[Order]:
        return [Order(do, one.index) for one in self.gateways if one.running]


def _words(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
