"""Which Pods a release replaces, in which order, how many at once, and when it stops.

Pure: the runner brings observations and carries out the actions.
"""

from __future__ import annotations

import msgspec

from .codes import Code
from .machine import Phase, PodRelease
from .model import Limits, Pod, PodSet


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """``min_serving``: how many other Pods have to be ready before one is taken out.
    ``created_before_s``: replaces Pods older than this (epoch seconds) where the controller shows
    no target revision. ``everything``: also Pods of the target revision."""

    concurrency: int = 1
    min_serving: int = 1
    force: bool = False
    everything: bool = False
    created_before_s: float = 0.0
    limits: Limits = Limits()


def outdated(pods: PodSet, options: Options) -> tuple[Pod, ...]:
    """In the order of their replacement: Pods that serve nothing first, then the newest ordinal.

    With a known target, `everything` still leaves out Pods made after ``created_before_s``: a
    release that is started again goes on where it was.
    """
    chosen = [pod for pod in pods.pods if _is_outdated(pod, pods.target, options)]
    return tuple(sorted(chosen, key=lambda pod: (not pod.ready, _ordinal(pod)), reverse=True))


def left_over(pods: PodSet, options: Options) -> tuple[Pod, ...]:
    """Pods that an interrupted release drained and that are to stay: they have to be resumed."""
    going = {pod.uid for pod in outdated(pods, options)}
    return tuple(
        pod for pod in pods.pods if pod.marked and pod.uid not in going and not pod.terminating
    )


class Release:
    def __init__(self, pods: PodSet, options: Options) -> None:
        self._options = options
        self._known = {pod.uid for pod in pods.pods}
        self._claimed: dict[str, str] = {}
        self.pods = [
            PodRelease(pod, options.limits, options.force) for pod in outdated(pods, options)
        ]
        self.stopped: str | None = None
        self._held_since_s: float | None = None
        self._problem: str | None = None

    @property
    def finished(self) -> bool:
        idle = Phase.WAITING if self.stopped else None
        return all(pod.ended or pod.phase is idle for pod in self.pods)

    @property
    def code(self) -> Code:
        """The worst outcome; a Pod that is out of service outranks everything."""
        codes = {pod.code for pod in self.pods}
        for code in (Code.OUT_OF_SERVICE, Code.NOT_REPLACED, Code.UNREACHABLE, Code.REFUSED):
            if code in codes:
                return code
        return Code.REFUSED if self._problem else Code.DONE

    @property
    def problems(self) -> list[str]:
        own = [self._problem] if self._problem else []
        return own + [f"{pod.pod.name}: {pod.problem}" for pod in self.pods if pod.problem]

    def active(self) -> list[PodRelease]:
        return [pod for pod in self.pods if not pod.ended and pod.phase is not Phase.WAITING]

    def stop(self, now_s: float, why: str) -> None:
        """No further Pod is taken; those that are not deleted yet go back to service."""
        self.stopped = self.stopped or why
        for pod in self.active():
            pod.recall(now_s, why)

    def advance(self, now_s: float, world: PodSet) -> None:
        """Stop at trouble, else take the next Pods as capacity allows. Call before the steps."""
        if any(pod.phase in (Phase.TROUBLE, Phase.RESUMING) for pod in self.pods):
            self.stop(now_s, "trouble with another Pod")
        if self.stopped:
            return
        waiting = [pod for pod in self.pods if pod.phase is Phase.WAITING]
        for pod in waiting[: max(0, self._options.concurrency - len(self.active()))]:
            if self._spare(world, pod) < self._options.min_serving:
                self._hold(now_s, pod)
                return
            self._held_since_s = None
            pod.start(now_s)

    def replacement(self, pod: PodRelease, world: PodSet) -> Pod | None:
        """A Pod that was not there at the beginning, preferably of the same name; claimed once."""
        claimed = self._claimed.get(pod.pod.uid)
        found = world.find(claimed) if claimed else None
        if found is not None and not found.terminating:
            return found
        taken = set(self._claimed.values())
        fresh = [
            one for one in world.pods if one.uid not in self._known | taken and not one.terminating
        ]
        fresh.sort(key=lambda one: (one.name != pod.pod.name, one.created_s))
        if not fresh:
            self._claimed.pop(pod.pod.uid, None)
            return None
        self._claimed[pod.pod.uid] = fresh[0].uid
        return fresh[0]

    def _spare(self, world: PodSet, candidate: PodRelease) -> int:
        """Ready Pods that stay in service when the candidate leaves."""
        leaving = {pod.pod.uid for pod in self.active()} | {candidate.pod.uid}
        return sum(
            1 for pod in world.pods if pod.ready and not pod.terminating and pod.uid not in leaving
        )

    def _hold(self, now_s: float, pod: PodRelease) -> None:
        """Capacity may come back (a Pod restarts); it gets as long as a replacement would."""
        self._held_since_s = self._held_since_s or now_s
        needed = self._options.min_serving
        pod.waits_for = f"{needed} other ready Pod{'s' if needed > 1 else ''}"
        only = len(self._known) <= needed
        if only or now_s - self._held_since_s >= self._options.limits.replace_s:
            self._problem = (
                f"{pod.pod.name} stays: fewer than {needed} other Pods are ready; "
                "--min-serving 0 accepts an interruption"
            )
            self.stopped = self._problem


def _is_outdated(pod: Pod, target: str | None, options: Options) -> bool:
    if target is not None and pod.revision is not None and pod.revision != target:
        return True
    if target is None or options.everything:
        return pod.created_s < options.created_before_s
    return False


def _ordinal(pod: Pod) -> tuple[int, str]:
    tail = pod.name.rpartition("-")[2]
    return (int(tail) if tail.isdigit() else -1, pod.name)
