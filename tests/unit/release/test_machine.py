"""One Pod's way through a release, with a clock that the test owns."""

from __future__ import annotations

from deploy.k8s.release.codes import Code
from deploy.k8s.release.machine import Action, How, Phase, PodRelease
from deploy.k8s.release.model import (
    CallResult,
    Kind,
    Limits,
    Pod,
    Replacement,
    Seen,
    Verdict,
    WorkerView,
)

LIMITS = Limits(unreachable_s=10, drain_s=100, resume_s=20, replace_s=50, retry_s=1, margin_s=5)
POD = Pod(
    name="worker-0",
    uid="a",
    address="127.0.0.1",
    port=8081,
    revision="old",
    created_s=0,
    ready=True,
    terminating=False,
    marked=False,
    grace_s=30,
)
ACCEPTED = CallResult(Verdict.ACCEPTED)
GONE = Seen(present=False)


def started(force: bool = False) -> PodRelease:
    pod = PodRelease(POD, LIMITS, force)
    pod.start(0)
    return pod


def seen(state: str | None = None, kind: Kind = Kind.DRAINABLE, **more: object) -> Seen:
    return Seen(present=True, worker=WorkerView(kind, state, **more))  # type: ignore[arg-type]


def draining(force: bool = False) -> PodRelease:
    pod = started(force)
    assert pod.step(0, seen("serving")) is Action.DRAIN
    pod.answered(0, Action.DRAIN, ACCEPTED)
    return pod


def test_a_pod_is_deleted_only_once_its_worker_is_drained() -> None:
    pod = draining()
    assert pod.step(1, seen("draining", reason="dynamo_inflight")) is None
    assert pod.waits_for == "draining (dynamo_inflight)"
    assert pod.step(2, seen("drained")) is Action.DELETE
    assert pod.how is How.DRAINED
    assert pod.step(3, GONE) is None
    assert pod.phase is Phase.REPLACING
    assert pod.step(4, Seen(False, replacement=Replacement("worker-0", False, "loading"))) is None
    assert pod.waits_for == "worker-0: loading"
    pod.step(5, Seen(False, replacement=Replacement("worker-0", True)))
    assert (pod.phase, pod.code) == (Phase.DONE, Code.DONE)


def test_an_unconfirmed_drain_is_asked_for_again() -> None:
    pod = started()
    assert pod.step(0, seen("serving")) is Action.DRAIN
    pod.answered(0, Action.DRAIN, CallResult(Verdict.AGAIN, "discovery (503)"))
    assert pod.step(0.5, seen("draining")) is None
    assert pod.step(1.0, seen("draining")) is Action.DRAIN
    pod.answered(1.0, Action.DRAIN, ACCEPTED)
    assert pod.step(3.0, seen("draining")) is None


def test_drained_is_not_believed_before_this_release_asked() -> None:
    """Somebody else drained it: the call is made all the same, and answers at once."""
    pod = started()
    assert pod.step(0, seen("drained")) is Action.DRAIN
    pod.answered(0, Action.DRAIN, ACCEPTED)
    assert pod.step(0, seen("drained")) is Action.DELETE


def test_a_drain_that_does_not_end_gives_the_pod_back() -> None:
    pod = draining()
    assert pod.step(99, seen("draining")) is None
    assert pod.step(100, seen("draining", reason="sglang_inflight")) is None
    assert pod.phase is Phase.RESUMING
    assert pod.step(100, seen("draining")) is Action.RESUME
    pod.answered(100, Action.RESUME, ACCEPTED)
    assert (pod.phase, pod.code) == (Phase.TROUBLE, Code.REFUSED)
    assert pod.problem is not None and "sglang_inflight" in pod.problem


def test_a_refusal_gives_the_pod_back() -> None:
    pod = started()
    pod.step(0, seen("paused"))
    pod.answered(0, Action.DRAIN, CallResult(Verdict.REFUSED, "paused (409)"))
    assert pod.phase is Phase.RESUMING


def test_force_deletes_what_cannot_be_drained_and_says_so() -> None:
    pod = started(force=True)
    pod.step(0, seen("paused"))
    pod.answered(0, Action.DRAIN, CallResult(Verdict.REFUSED, "paused (409)"))
    assert pod.step(1, seen("paused")) is Action.DELETE
    assert pod.step(2, seen("paused")) is None
    assert pod.how is How.FORCED


def test_force_does_not_go_around_a_wrong_token() -> None:
    pod = started(force=True)
    assert (
        pod.step(0, seen(kind=Kind.FORBIDDEN, problem="a valid bearer token is required")) is None
    )
    assert (pod.phase, pod.code) == (Phase.TROUBLE, Code.REFUSED)


def test_an_unreachable_worker_is_never_deleted() -> None:
    pod = started()
    lost = seen(kind=Kind.UNREACHABLE, problem="cannot reach it")
    assert pod.step(9, lost) is None
    assert pod.step(10, lost) is None
    assert (pod.phase, pod.code) == (Phase.TROUBLE, Code.REFUSED)


def test_a_listener_that_is_not_this_workers_stops_the_release() -> None:
    pod = started()
    assert pod.step(0, seen(kind=Kind.UNKNOWN, problem="no /engine")) is None
    assert pod.phase is Phase.TROUBLE


def test_a_worker_type_without_drain_is_deleted_and_never_called_drained() -> None:
    pod = started()
    assert pod.step(0, seen(kind=Kind.NO_DRAIN)) is Action.DELETE
    assert pod.how is How.NO_DRAIN


def test_a_pod_that_vanishes_is_not_resumed_but_its_replacement_awaited() -> None:
    pod = draining()
    assert pod.step(1, GONE) is None
    assert (pod.phase, pod.how) == (Phase.REPLACING, How.VANISHED)


def test_a_pod_that_somebody_else_deletes_is_not_deleted_again() -> None:
    pod = draining()
    assert pod.step(1, Seen(present=True, terminating=True)) is None
    assert pod.step(2, Seen(present=True, terminating=True)) is None
    assert (pod.phase, pod.how) == (Phase.DELETING, How.VANISHED)


def test_a_worker_that_somebody_resumes_is_left_serving() -> None:
    pod = draining()
    assert pod.step(1, seen("serving")) is None
    assert pod.phase is Phase.RESUMING


def test_a_pod_that_does_not_go_stops_the_release() -> None:
    pod = draining()
    pod.step(1, seen("drained"))
    assert pod.step(35, seen("drained")) is None
    assert pod.step(36, seen("drained")) is None
    assert (pod.phase, pod.code) == (Phase.TROUBLE, Code.NOT_REPLACED)


def test_a_replacement_that_never_serves_stops_the_release() -> None:
    pod = draining()
    pod.step(1, seen("drained"))
    pod.step(2, GONE)
    assert pod.step(51, GONE) is None
    assert pod.phase is Phase.REPLACING
    pod.step(52, Seen(False, replacement=Replacement("worker-0", False, "not ready")))
    assert (pod.phase, pod.code) == (Phase.TROUBLE, Code.NOT_REPLACED)


def test_a_resume_that_fails_to_the_end_is_called_out_of_service() -> None:
    pod = draining()
    pod.recall(5, "interrupted")
    for now_s in range(5, 25):
        assert pod.step(now_s, seen("drained")) is Action.RESUME
        pod.answered(now_s, Action.RESUME, CallResult(Verdict.AGAIN, "discovery (503)"))
    assert pod.step(25, seen("drained")) is None
    assert (pod.phase, pod.code) == (Phase.TROUBLE, Code.OUT_OF_SERVICE)


def test_a_deletion_that_the_api_server_forbids_stops_the_release() -> None:
    pod = draining()
    assert pod.step(1, seen("drained")) is Action.DELETE
    pod.answered(1, Action.DELETE, CallResult(Verdict.REFUSED, "403 Forbidden"))
    assert (pod.phase, pod.code) == (Phase.RESUMING, Code.UNREACHABLE)
