"""Which Pods go, in which order, how many at once, and what stops the rest."""

from __future__ import annotations

import io

import msgspec
import pytest

from deploy.k8s.release.codes import Code
from deploy.k8s.release.display import Table, render
from deploy.k8s.release.machine import Action, Phase
from deploy.k8s.release.model import CallResult, Kind, Pod, PodSet, Seen, Verdict, WorkerView
from deploy.k8s.release.planner import Options, Release, left_over, outdated


def pod(number: int, revision: str = "old", **changes: object) -> Pod:
    plain = Pod(
        name=f"worker-{number}",
        uid=f"{number}-{revision}",
        address="127.0.0.1",
        port=8081,
        revision=revision,
        created_s=number,
        ready=True,
        terminating=False,
        marked=False,
    )
    return msgspec.structs.replace(plain, **changes)


def three(**changes: object) -> PodSet:
    return PodSet(tuple(pod(number, **changes) for number in range(3)), "new")


def names(pods: tuple[Pod, ...]) -> list[str]:
    return [one.name for one in pods]


def test_pods_of_the_target_revision_stay() -> None:
    pods = PodSet((pod(0), pod(1, "new"), pod(2)), "new")
    assert names(outdated(pods, Options())) == ["worker-2", "worker-0"]


def test_a_pod_that_serves_nothing_goes_first() -> None:
    pods = PodSet((pod(0, ready=False), pod(1), pod(2)), "new")
    assert names(outdated(pods, Options())) == ["worker-0", "worker-2", "worker-1"]


def test_without_a_target_the_age_decides() -> None:
    pods = PodSet((pod(0), pod(1), pod(2)), None)
    assert names(outdated(pods, Options(created_before_s=1.5))) == ["worker-1", "worker-0"]


def test_all_replaces_current_pods_too_but_not_those_made_since() -> None:
    pods = PodSet((pod(0, "new"), pod(1, "new")), "new")
    options = Options(everything=True, created_before_s=0.5)
    assert names(outdated(pods, options)) == ["worker-0"]


def test_a_pod_that_a_rollback_made_current_again_is_left_over() -> None:
    pods = PodSet((pod(0, "new", marked=True), pod(1, marked=True)), "new")
    assert names(left_over(pods, Options())) == ["worker-0"]


@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_more_pods_are_taken_than_asked_for(concurrency: int) -> None:
    release = Release(three(), Options(concurrency=concurrency))
    release.advance(0, three())
    assert [one.pod.name for one in release.active()] == ["worker-2", "worker-1"][:concurrency]


def test_enough_other_pods_stay_ready() -> None:
    world = three()
    release = Release(world, Options(concurrency=3, min_serving=2))
    release.advance(0, world)
    release.advance(1, world)
    assert len(release.active()) == 1


def test_the_only_pod_is_not_taken_without_leave() -> None:
    world = PodSet((pod(0),), "new")
    release = Release(world, Options())
    release.advance(0, world)
    assert release.finished
    assert release.code is Code.REFUSED
    assert "--min-serving 0" in release.problems[0]
    willing = Release(world, Options(min_serving=0))
    willing.advance(0, world)
    assert len(willing.active()) == 1


def test_trouble_stops_the_release_and_calls_the_others_back() -> None:
    world = three()
    release = Release(world, Options(concurrency=2))
    release.advance(0, world)
    first, second = release.active()
    serving = Seen(present=True, worker=WorkerView(Kind.DRAINABLE, "serving"))
    for one in (first, second):
        assert one.step(0, serving) is Action.DRAIN
        one.answered(0, Action.DRAIN, CallResult(Verdict.ACCEPTED))
    first.answered(1, Action.DRAIN, CallResult(Verdict.REFUSED, "409"))
    release.advance(2, world)
    assert [first.phase, second.phase] == [Phase.RESUMING, Phase.RESUMING]
    assert release.pods[2].phase is Phase.WAITING
    for one in (first, second):
        assert one.step(3, serving) is Action.RESUME
        one.answered(3, Action.RESUME, CallResult(Verdict.ACCEPTED))
    assert release.finished
    assert release.code is Code.REFUSED


def test_each_replacement_counts_for_one_pod_only() -> None:
    world = three()
    release = Release(world, Options(concurrency=2))
    release.advance(0, world)
    first, second = release.active()
    fresh = pod(9, "new", created_s=100.0)
    later = PodSet((pod(0), fresh), "new")
    assert release.replacement(first, later) == fresh
    assert release.replacement(second, later) is None
    assert release.replacement(first, later) == fresh


def test_a_replacement_of_the_same_name_is_preferred() -> None:
    world = three()
    release = Release(world, Options())
    release.advance(0, world)
    namesake = pod(2, "new", created_s=50.0)
    later = PodSet((pod(0), pod(1), pod(9, "new", created_s=1.0), namesake), "new")
    assert release.replacement(release.active()[0], later) == namesake


def test_a_replacement_that_vanishes_is_replaced_in_turn() -> None:
    world = three()
    release = Release(world, Options())
    release.advance(0, world)
    one = release.active()[0]
    assert release.replacement(one, PodSet((pod(2, "new"),))) is not None
    assert release.replacement(one, PodSet(())) is None
    assert release.replacement(one, PodSet((pod(2, "newer"),))) == pod(2, "newer")


def test_the_table_shows_every_pod_and_what_it_waits_for() -> None:
    world = three()
    release = Release(world, Options())
    release.advance(0, world)
    busy = Seen(present=True, worker=WorkerView(Kind.DRAINABLE, "draining", "routing_grace"))
    release.active()[0].step(0, busy)
    lines = render(release.pods, 3.0)
    assert lines[0].split() == ["POD", "PHASE", "TIME", "DETAIL"]
    assert lines[1].split()[:4] == ["worker-2", "draining", "3", "s"]
    assert "routing_grace" in lines[1]
    assert lines[-1] == "0 of 3 replaced"


def test_without_a_terminal_a_line_is_written_per_change_only() -> None:
    stream = io.StringIO()
    table = Table(stream)
    world = three()
    release = Release(world, Options())
    table.show(release.pods, 0)
    assert stream.getvalue() == ""
    release.advance(0, world)
    for now_s in (0.0, 1.0, 2.0):
        table.show(release.pods, now_s)
    assert stream.getvalue() == "worker-2: checking (0 s)\n"
