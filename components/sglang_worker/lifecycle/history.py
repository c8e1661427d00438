"""How often and how long each state was held, for metrics. It has no clock of its own."""

from __future__ import annotations

from sglang_worker.lifecycle.states import Reason, State

Place = tuple[State, Reason | None]


class History:
    """Times are seconds of the machine's clock; written by the loop, read from any thread.

    A drain lasts from entering ``draining`` to entering ``drained``. One that a resume cancels or
    a stop overtakes counts as abandoned, and has no duration.
    """

    def __init__(self, now_s: float) -> None:
        self._here: tuple[Place, float] = (State.SERVING, None), now_s
        self._spent_s: dict[Place, float] = {}
        self.entered: dict[State, int] = dict.fromkeys(State, 0)
        self.entered[State.SERVING] = 1
        self.draining_since_s: float | None = None
        self.drains = 0
        self.drains_abandoned = 0
        self.drains_took_s = 0.0

    def note(self, state: State, reason: Reason | None, now_s: float) -> None:
        """The machine is at this state and reason from now on; no-op when it was before."""
        place, since_s = self._here
        if place == (state, reason):
            return
        self._spent_s[place] = self._spent_s.get(place, 0.0) + now_s - since_s
        self._here = (state, reason), now_s
        if state is not place[0]:
            self._change(place[0], state, now_s)

    def seconds(self, now_s: float) -> dict[Place, float]:
        """Time at each state and reason so far, the present one included."""
        spent = dict(self._spent_s)
        place, since_s = self._here
        spent[place] = spent.get(place, 0.0) + now_s - since_s
        return spent

    def _change(self, before: State, after: State, now_s: float) -> None:
        self.entered[after] += 1
        if before is State.DRAINING:
            self._end_drain(after, now_s)
        if after is State.DRAINING:
            self.draining_since_s = now_s

    def _end_drain(self, after: State, now_s: float) -> None:
        began_s, self.draining_since_s = self.draining_since_s, None
        if after is not State.DRAINED or began_s is None:
            self.drains_abandoned += 1
            return
        self.drains += 1
        self.drains_took_s += now_s - began_s
