"""One Pod's way through a release. No clock, no HTTP, no Kubernetes: it is told and it answers.

waiting -> checking -> draining -> deleting -> replacing -> done
              |            |           |           |
              +---------- trouble (resumed first where a drain was asked for)

A drainable Pod is deleted only from `drained`, or with ``force``. A Pod of another worker type is
deleted with its grace period and never called drained.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from .codes import Code
from .model import CallResult, Kind, Limits, Pod, Seen, Verdict, WorkerView


class Phase(str, Enum):
    WAITING = "waiting"
    CHECKING = "checking"
    DRAINING = "draining"
    DELETING = "deleting"
    REPLACING = "replacing"
    RESUMING = "resuming"
    DONE = "done"
    TROUBLE = "trouble"


class Action(str, Enum):
    DRAIN = "drain"
    DELETE = "delete"
    RESUME = "resume"


class How(str, Enum):
    """Why the old Pod went."""

    DRAINED = "drained"
    NO_DRAIN = "stopped, this worker type has no drain"
    FORCED = "forced, not drained"
    VANISHED = "vanished, not by this release"


ENDED = frozenset({Phase.DONE, Phase.TROUBLE})


class PodRelease:
    def __init__(self, pod: Pod, limits: Limits, force: bool = False) -> None:
        self.pod = pod
        self.phase = Phase.WAITING
        self.how: How | None = None
        self.waits_for = ""
        self.problem: str | None = None
        self.code = Code.DONE
        self.began_s = 0.0
        self._limits = limits
        self._force = force
        self._entered_s = 0.0
        self._retry_at_s = 0.0
        self._drain_asked = False
        self._accepted = False
        self._asked = False

    @property
    def ended(self) -> bool:
        return self.phase in ENDED

    def start(self, now_s: float) -> None:
        self.began_s = now_s
        self._enter(Phase.CHECKING, now_s)

    def step(self, now_s: float, seen: Seen) -> Action | None:
        handler = _HANDLERS.get(self.phase)
        return handler(self, now_s, seen) if handler else None

    def answered(self, now_s: float, action: Action, result: CallResult) -> None:
        """The outcome of an action that `step` asked for."""
        if action is Action.DRAIN:
            self._drain_answered(now_s, result)
        elif action is Action.RESUME:
            self._resume_answered(now_s, result)
        elif result.verdict is not Verdict.ACCEPTED:
            self._give_up(now_s, f"cannot delete the Pod: {result.problem}", Code.UNREACHABLE)

    def recall(self, now_s: float, why: str) -> None:
        """The release ends early: a Pod that is not deleted yet goes back to service. What is
        deleted already cannot be given back."""
        if self.phase is Phase.CHECKING:
            self._enter(Phase.WAITING, now_s)
        elif self.phase is Phase.DRAINING:
            self._give_up(now_s, why, Code.REFUSED)

    def _check(self, now_s: float, seen: Seen) -> Action | None:
        if self._gone(now_s, seen):
            return None
        worker = seen.worker
        self.waits_for = _describe(worker)
        if worker is not None and worker.kind is Kind.DRAINABLE:
            self._enter(Phase.DRAINING, now_s)
            self._drain_asked = True
            return Action.DRAIN
        if worker is not None and worker.kind is Kind.NO_DRAIN:
            return self._delete(now_s, How.NO_DRAIN)
        if worker is not None and worker.kind in (Kind.FORBIDDEN, Kind.UNKNOWN):
            return self._cannot(now_s, worker.problem or worker.kind.value, worker.kind)
        if now_s - self._entered_s >= self._limits.unreachable_s:
            return self._cannot(now_s, f"the worker is not to be asked: {self.waits_for}")
        return None

    def _drain(self, now_s: float, seen: Seen) -> Action | None:
        if self._gone(now_s, seen):
            return None
        worker = seen.worker
        self.waits_for = _describe(worker)
        state = worker.state if worker and worker.kind is Kind.DRAINABLE else None
        if self._accepted and state == "drained":
            return self._delete(now_s, How.DRAINED)
        if self._accepted and state == "serving":
            return self._cannot(now_s, "somebody resumed the worker during the release")
        if now_s - self._entered_s >= self._limits.drain_s:
            return self._cannot(
                now_s, f"not drained after {self._limits.drain_s:g} s, last: {self.waits_for}"
            )
        if not self._accepted and now_s >= self._retry_at_s:
            return Action.DRAIN
        return None

    def _drain_answered(self, now_s: float, result: CallResult) -> None:
        if self.phase is not Phase.DRAINING:
            return
        self._accepted = result.verdict is Verdict.ACCEPTED
        self._retry_at_s = now_s + self._limits.retry_s
        if result.verdict is Verdict.AGAIN:
            self.waits_for = result.problem or "discovery has not confirmed"
        if result.verdict is Verdict.REFUSED:
            problem = f"the worker refuses to drain: {result.problem}"
            if self._cannot(now_s, problem) is Action.DELETE:
                # No step asked for this deletion; the next one repeats it.
                self._asked = False

    def _await_deletion(self, now_s: float, seen: Seen) -> Action | None:
        if not seen.present:
            self._enter(Phase.REPLACING, now_s)
            return None
        if not self._asked:
            self._asked = True
            return Action.DELETE
        limit_s = self.pod.grace_s + self._limits.margin_s
        self.waits_for = "the Pod to go"
        if now_s - self._entered_s >= limit_s:
            self._trouble(
                now_s, f"the Pod is still there {limit_s:g} s after its deletion", Code.NOT_REPLACED
            )
        return None

    def _await_replacement(self, now_s: float, seen: Seen) -> Action | None:
        replacement = seen.replacement
        if replacement is not None and replacement.serving:
            self.waits_for = ""
            self._enter(Phase.DONE, now_s)
            return None
        self.waits_for = "a replacement Pod"
        if replacement is not None:
            self.waits_for = f"{replacement.name}: {replacement.waits_for}"
        if now_s - self._entered_s >= self._limits.replace_s:
            self._trouble(
                now_s,
                f"no replacement serves after {self._limits.replace_s:g} s: {self.waits_for}",
                Code.NOT_REPLACED,
            )
        return None

    def _resume(self, now_s: float, seen: Seen) -> Action | None:
        if not seen.present or seen.terminating:
            self._enter(Phase.TROUBLE, now_s)
            self.waits_for = "the Pod is gone"
            return None
        if now_s - self._entered_s >= self._limits.resume_s:
            self.code = Code.OUT_OF_SERVICE
            self.problem = f"{self.problem}; and it could not be resumed: {self.waits_for}"
            self._enter(Phase.TROUBLE, now_s)
            return None
        return Action.RESUME if now_s >= self._retry_at_s else None

    def _resume_answered(self, now_s: float, result: CallResult) -> None:
        self._retry_at_s = now_s + self._limits.retry_s
        self.waits_for = result.problem or ""
        if result.verdict is Verdict.ACCEPTED:
            self.waits_for = "serves again"
            self._enter(Phase.TROUBLE, now_s)

    def _gone(self, now_s: float, seen: Seen) -> bool:
        """A node failed, or somebody else deletes it: what is left is to await its replacement."""
        if seen.present and not seen.terminating:
            return False
        self.how = How.VANISHED
        self._asked = True
        self._enter(Phase.DELETING if seen.present else Phase.REPLACING, now_s)
        return True

    def _cannot(self, now_s: float, problem: str, kind: Kind | None = None) -> Action | None:
        """Without ``force`` the Pod stays. A wrong token is never forced: fix the token."""
        if self._force and kind is not Kind.FORBIDDEN:
            return self._delete(now_s, How.FORCED)
        self._give_up(now_s, problem, Code.REFUSED)
        return None

    def _give_up(self, now_s: float, problem: str, code: Code) -> None:
        self.problem, self.code = problem, code
        self._retry_at_s = now_s
        self._enter(Phase.RESUMING if self._drain_asked else Phase.TROUBLE, now_s)

    def _delete(self, now_s: float, how: How) -> Action:
        self.how = how
        self.waits_for = ""
        self._asked = True
        self._enter(Phase.DELETING, now_s)
        return Action.DELETE

    def _trouble(self, now_s: float, problem: str, code: Code) -> None:
        self.problem, self.code = problem, code
        self._enter(Phase.TROUBLE, now_s)

    def _enter(self, phase: Phase, now_s: float) -> None:
        self.phase = phase
        self._entered_s = now_s


_HANDLERS: dict[Phase, Callable[[PodRelease, float, Seen], Action | None]] = {
    Phase.CHECKING: PodRelease._check,
    Phase.DRAINING: PodRelease._drain,
    Phase.DELETING: PodRelease._await_deletion,
    Phase.REPLACING: PodRelease._await_replacement,
    Phase.RESUMING: PodRelease._resume,
}


def _describe(worker: WorkerView | None) -> str:
    if worker is None:
        return "not asked yet"
    if worker.kind is not Kind.DRAINABLE:
        return worker.problem or worker.kind.value
    return f"{worker.state} ({worker.reason})" if worker.reason else str(worker.state)
