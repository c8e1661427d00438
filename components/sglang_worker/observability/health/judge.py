"""Decides whether an engine is healthy from probes and from signs of progress. Pure: no clock, no
asyncio; every call carries the time.

A probe that stays unanswered proves nothing by itself: behind a long prefill it has to wait. So
what an unanswered probe means depends on what else goes on, rank by rank:

- *idle* (nothing else in flight): the probe must end within ``answer_s`` of the last turn of the
  scheduler's loop, and, turning or not, within `TURNING_FACTOR` times that: a machine that is short
  of CPU slows an engine down, and must not have it restarted.
- *busy*: the probe may wait for as long as the engine moves. Signs are turns of the scheduler's
  loop (per rank) and outputs that arrived (with one rank). None for ``stall_s`` is a fault, and so
  is turning for ``silent_s`` while requests wait and nothing at all arrives.
- *control call* (weights, memory, cache): the scheduler does nothing else meanwhile; ``control_s``.
- *held* (generation paused, memory released): a probe would hang, so none is sent; the loop of a
  paused scheduler still turns, and must.
- *cold* (nothing was ever answered): kernels may be compiling; ``silent_s``.

A probe that ends badly is a fault at once. Faults of a rank last until one of its probes passes;
a stall also ends with the next sign of progress.
"""

from __future__ import annotations

from enum import Enum

import msgspec

TURNING_FACTOR = 3


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; see the module. ``lag_s``: readings further apart than this mean that the worker's
    own loop was blocked, and answers may lie unread: every wait begins anew."""

    interval_s: float = 10.0
    lag_s: float = 2.0
    retry_s: float = 1.0
    answer_s: float = 10.0
    stall_s: float = 60.0
    silent_s: float = 600.0
    control_s: float = 1800.0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What is seen of the engine at one moment.

    ``turns``: per data-parallel rank a number that grows with its scheduler's loop, None where it
    cannot be seen. ``outputs``: changes whenever anything arrives from the engine, None where that
    cannot be seen. ``others``: requests besides probes are in flight. ``control``: the name of a
    control call that waits for the schedulers.
    """

    turns: tuple[int | None, ...]
    outputs: float | None = None
    others: bool = False
    control: str | None = None
    held: bool = False


class Wish(Enum):
    """What the judge wants done about one rank's probe."""

    NOTHING = "nothing"
    SEND = "send"
    ABORT = "abort"


class _Rank:
    def __init__(self, cold: bool) -> None:
        self.cold = cold
        self.sent_s: float | None = None
        # It has waited for too long; asked to end.
        self.overdue = self.aborting = False
        self.passed_s = float("-inf")
        self.tried_s = float("-inf")
        self.turns: int | None = None
        self.turned_s = float("-inf")
        self.failure: str | None = None
        self.stall: str | None = None


class Judge:
    def __init__(self, bounds: Bounds, ranks: int, now_s: float, *, cold: bool = True) -> None:
        """``cold`` False: the engine has answered before, e.g. its warm-up."""
        self._bounds = bounds
        self._ranks = [_Rank(cold) for _ in range(ranks)]
        self._last = Reading(turns=(None,) * ranks)
        self._output_s = self._busy_s = self._freed_s = self._read_s = now_s
        self._since_s = {"control": now_s, "held": now_s, "others": now_s}

    # --- what happened --------------------------------------------------------------------------

    def sent(self, rank: int, now_s: float) -> None:
        state = self._ranks[rank]
        state.sent_s = state.tried_s = now_s
        state.overdue = state.aborting = False

    def passed(self, rank: int, now_s: float) -> None:
        state = self._ranks[rank]
        state.sent_s = state.failure = state.stall = None
        state.passed_s, state.cold = now_s, False

    def failed(self, rank: int, reason: str, now_s: float) -> None:
        """It ended otherwise than normally. After an abort, or while a pause or a control call may
        have ended it, that says nothing."""
        state = self._ranks[rank]
        if not (state.aborting or self._last.held or self._last.control):
            state.failure = reason
        state.sent_s, state.tried_s = None, now_s

    def aborted(self, rank: int) -> None:
        """It was asked to end; `failed` or `passed` still follows."""
        self._ranks[rank].aborting = True

    def probe_now(self) -> None:
        """Somebody asks: the next wish of every rank is a probe."""
        for state in self._ranks:
            state.tried_s = state.passed_s = float("-inf")

    def observe(self, seen: Reading, now_s: float) -> None:
        before, self._last = self._last, seen
        for name in self._since_s:
            if getattr(seen, name) and not getattr(before, name):
                self._since_s[name] = now_s
        if seen.outputs != before.outputs:
            self._output_s = now_s
        if seen.others:
            self._busy_s = now_s
        if seen.control or seen.held or now_s - self._read_s > self._bounds.lag_s:
            self._freed_s = now_s
        self._read_s = now_s
        for state, turns in zip(self._ranks, seen.turns, strict=True):
            if turns is not None and turns != state.turns:
                state.turns, state.turned_s = turns, now_s
            state.stall = self._stall(state, now_s)

    # --- what follows ---------------------------------------------------------------------------

    @property
    def fault(self) -> str | None:
        """Why the engine is not healthy, in one sentence."""
        for number, state in enumerate(self._ranks):
            reason = state.failure or state.stall
            if reason is not None:
                where = f" of data-parallel rank {number}" if len(self._ranks) > 1 else ""
                return f"the engine{where} fails its health check: {reason}"
        return None

    @property
    def held(self) -> bool:
        """Nobody may ask the engine anything now."""
        return self._last.held or self._last.control is not None

    def passed_since(self, now_s: float) -> bool:
        return all(state.passed_s >= now_s for state in self._ranks)

    def wish(self, rank: int, now_s: float) -> Wish:
        state = self._ranks[rank]
        if state.sent_s is not None:
            over = self._last.held or state.overdue
            return Wish.ABORT if over and not state.aborting else Wish.NOTHING
        if self.held or (self._last.others and not self._shows_progress(state)):
            return Wish.NOTHING
        if state.failure is not None:
            return Wish.SEND if now_s - state.tried_s >= self._bounds.retry_s else Wish.NOTHING
        last_s = max(state.passed_s, state.tried_s)
        if self._last.others and len(self._ranks) == 1 and last_s != float("-inf"):
            # Clients' requests prove more than a probe would.
            last_s = max(last_s, self._output_s)
        return Wish.SEND if now_s - last_s >= self._bounds.interval_s else Wish.NOTHING

    def _shows_progress(self, state: _Rank) -> bool:
        """Else a probe that waits behind requests could not be judged."""
        return state.turns is not None or self._last.outputs is not None

    def _stall(self, state: _Rank, now_s: float) -> str | None:
        bounds, seen = self._bounds, self._last
        turned_s = state.turned_s
        if seen.control:
            since_s = max(self._since_s["control"], turned_s)
            return _over(now_s - since_s, bounds.control_s, f"{seen.control} does not end")
        if seen.held:
            if state.turns is None:
                return None
            since_s = max(self._since_s["held"], turned_s)
            return _over(now_s - since_s, bounds.stall_s, "its paused scheduler does not turn")
        if state.sent_s is None:
            return None
        asked_s = max(state.sent_s, self._freed_s)
        if state.cold:
            since_s = max(asked_s, self._output_s) if seen.others else asked_s
            return _over(now_s - since_s, bounds.silent_s, "it has never answered")
        if seen.others:
            return self._busy_stall(state, asked_s, now_s)
        if reason := self._idle_fault(state, max(asked_s, self._busy_s), now_s):
            state.failure, state.overdue = state.failure or reason, True
        return None

    def _idle_fault(self, state: _Rank, since_s: float, now_s: float) -> str | None:
        what, bound_s = "idle, it does not answer a probe", self._bounds.answer_s
        still = _over(now_s - max(since_s, state.turned_s), bound_s, what)
        return still or _over(now_s - since_s, TURNING_FACTOR * bound_s, f"{what}, though it turns")

    def _busy_stall(self, state: _Rank, asked_s: float, now_s: float) -> str | None:
        seen, bounds = self._last, self._bounds
        if not self._shows_progress(state):
            return None
        since_s = max(asked_s, state.turned_s)
        if state.turns is None or len(self._ranks) == 1:
            since_s = max(since_s, self._output_s)
        if reason := _over(now_s - since_s, bounds.stall_s, "busy, it makes no progress"):
            return reason
        silent_s = now_s - max(asked_s, self._output_s, self._since_s["others"])
        if seen.outputs is None:
            return None
        return _over(silent_s, bounds.silent_s, "requests wait and nothing comes out")


def _over(waited_s: float, bound_s: float, what: str) -> str | None:
    return f"{what} ({bound_s:g} s)" if waited_s > bound_s else None
