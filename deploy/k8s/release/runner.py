"""Connects the plan with the world: observe, decide, act, show, wait; until the release ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from .codes import Code, ReleaseError
from .display import Table
from .machine import Action, Phase, PodRelease
from .model import CallResult, Pod, PodSet, Replacement, Seen, Verdict
from .planner import Options, Release, left_over
from .worker import Worker

POLL_S = 0.5
ASKED = frozenset({Phase.CHECKING, Phase.DRAINING})


class World(Protocol):
    def snapshot(self, revision: str | None) -> PodSet: ...

    def wait_change(self, timeout_s: float) -> None: ...

    def mark(self, pod: Pod, value: str | None) -> str | None: ...

    def delete(self, pod: Pod) -> str | None: ...


class Runner:
    """``revision()`` is read once at the start; ``connect`` gives the worker of a Pod."""

    def __init__(
        self,
        world: World,
        connect: Callable[[Pod], Worker],
        options: Options,
        table: Table,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._world = world
        self._connect = connect
        self._options = options
        self._table = table
        self._clock = clock

    def run(self, revision: str | None, say: Callable[[str], None]) -> Code:
        pods = self._world.snapshot(revision)
        self._resume_left_overs(left_over(pods, self._options), say)
        release = Release(pods, self._options)
        if not release.pods:
            say(f"nothing to do: all {len(pods.pods)} Pods are current")
            return Code.DONE
        ended = Code.DONE
        try:
            self._until_finished(release, revision)
        except KeyboardInterrupt:
            ended = Code.INTERRUPTED
            say("interrupted: giving drained Pods back to service; run it again to go on")
            self._recall(release)
        except ReleaseError as error:
            ended = error.code
            say(f"{error}; giving drained Pods back to service")
            self._recall(release)
        for problem in release.problems:
            say(problem)
        # A Pod that is out of service outranks the reason for which the release ended.
        if release.code is Code.OUT_OF_SERVICE:
            return release.code
        return ended or release.code

    def _until_finished(self, release: Release, revision: str | None) -> None:
        while not release.finished:
            self._tick(release, self._world.snapshot(revision))
            if not release.finished:
                self._world.wait_change(POLL_S)
        self._table.show(release.pods, self._clock())

    def _tick(self, release: Release, world: PodSet) -> None:
        release.advance(self._clock(), world)
        for pod in release.active():
            action = pod.step(self._clock(), self._seen(release, pod, world))
            if action is not None:
                pod.answered(self._clock(), action, self._perform(action, pod.pod))
        self._table.show(release.pods, self._clock())

    def _recall(self, release: Release) -> None:
        """Only drained Pods are worth staying for; deletions and replacements go on by themselves.
        The cluster may be silent: then what was seen last has to do."""
        release.stop(self._clock(), "interrupted")
        while any(pod.phase is Phase.RESUMING for pod in release.pods):
            for pod in release.pods:
                if pod.phase is Phase.RESUMING:
                    action = pod.step(self._clock(), Seen(present=True))
                    if action is not None:
                        pod.answered(self._clock(), action, self._perform(action, pod.pod))
            self._table.show(release.pods, self._clock())
            self._world.wait_change(POLL_S)

    def _seen(self, release: Release, pod: PodRelease, world: PodSet) -> Seen:
        current = world.find(pod.pod.uid)
        if pod.phase is Phase.REPLACING:
            return Seen(present=False, replacement=self._replacement(release, pod, world))
        if current is None:
            return Seen(present=False)
        asked = pod.phase in ASKED and not current.terminating
        worker = self._connect(current).view() if asked else None
        return Seen(present=True, terminating=current.terminating, worker=worker)

    def _replacement(self, release: Release, pod: PodRelease, world: PodSet) -> Replacement | None:
        found = release.replacement(pod, world)
        if found is None:
            return None
        if not found.ready:
            return Replacement(found.name, False, "not ready")
        waits_for = self._connect(found).ready()
        return Replacement(found.name, waits_for is None, waits_for or "")

    def _perform(self, action: Action, pod: Pod) -> CallResult:
        if action is Action.DELETE:
            problem = self._world.delete(pod)
            return CallResult(Verdict.ACCEPTED if problem is None else Verdict.REFUSED, problem)
        if action is Action.DRAIN:
            # Marked first: a run that dies between the two calls must leave a trace, not a Pod
            # that nobody knows to be drained.
            problem = self._world.mark(pod, "draining")
            if problem is not None:
                return CallResult(Verdict.AGAIN, f"cannot annotate the Pod: {problem}")
            return self._connect(pod).drain()
        result = self._connect(pod).resume()
        if result.verdict is Verdict.ACCEPTED:
            self._world.mark(pod, None)
        return result

    def _resume_left_overs(self, pods: tuple[Pod, ...], say: Callable[[str], None]) -> None:
        for pod in pods:
            result = self._perform(Action.RESUME, pod)
            if result.verdict is not Verdict.ACCEPTED:
                raise ReleaseError(
                    Code.OUT_OF_SERVICE,
                    f"{pod.name} was drained by an earlier release and is current, but cannot be "
                    f"resumed: {result.problem}",
                )
            say(f"{pod.name}: resumed, an interrupted release had drained it")
