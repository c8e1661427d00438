"""How a run ends when the cluster falls silent: what was drained is given back first."""

from __future__ import annotations

import io

from deploy.k8s.release.codes import Code, ReleaseError
from deploy.k8s.release.display import Table
from deploy.k8s.release.model import CallResult, Kind, Limits, Pod, PodSet, Verdict, WorkerView
from deploy.k8s.release.planner import Options
from deploy.k8s.release.runner import Runner
from tests.unit.release.test_planner import pod


class SilentCluster:
    """Answers some times, then never again."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self.deleted: list[str] = []

    def snapshot(self, revision: str | None) -> PodSet:
        self._answers -= 1
        if self._answers < 0:
            raise ReleaseError(Code.UNREACHABLE, "no word from the API server")
        return PodSet((pod(0), pod(1)), "new")

    def wait_change(self, timeout_s: float) -> None:
        return None

    def mark(self, pod: Pod, value: str | None) -> str | None:
        return None

    def delete(self, pod: Pod) -> str | None:
        self.deleted.append(pod.name)
        return None


class Worker:
    """Never drained; resumes as told."""

    def __init__(self, resumes: bool) -> None:
        self.resumes = resumes
        self.asked: list[str] = []

    def view(self) -> WorkerView:
        return WorkerView(Kind.DRAINABLE, "draining" if self.asked else "serving")

    def drain(self) -> CallResult:
        self.asked.append("drain")
        return CallResult(Verdict.ACCEPTED)

    def resume(self) -> CallResult:
        self.asked.append("resume")
        return CallResult(Verdict.ACCEPTED if self.resumes else Verdict.AGAIN, "no answer")


def run(cluster: SilentCluster, worker: Worker) -> tuple[Code, list[str]]:
    said: list[str] = []
    ticks = iter(range(10_000))
    runner = Runner(
        cluster,
        lambda _pod: worker,  # type: ignore[arg-type,return-value]
        Options(limits=Limits(resume_s=30)),
        Table(io.StringIO()),
        clock=lambda: float(next(ticks)),
    )
    return runner.run("new", said.append), said


def test_a_silent_cluster_ends_the_release_with_its_pod_back_in_service() -> None:
    cluster, worker = SilentCluster(4), Worker(resumes=True)
    code, said = run(cluster, worker)
    assert code is Code.UNREACHABLE
    assert worker.asked == ["drain", "resume"]
    assert cluster.deleted == []
    assert "no word from the API server" in said[0]


def test_a_pod_that_cannot_be_given_back_outranks_the_silence() -> None:
    code, said = run(SilentCluster(4), Worker(resumes=False))
    assert code is Code.OUT_OF_SERVICE
    assert "could not be resumed" in said[-1]
