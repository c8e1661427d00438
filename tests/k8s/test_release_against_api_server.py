"""The release program against an API server that speaks HTTP, and workers with bad manners."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.k8s.release.codes import Code
from deploy.k8s.release.command import main
from deploy.k8s.release.pods import MARK
from tests.k8s.api_server import ApiServer
from tests.k8s.listeners import Listeners, Manners
from tests.k8s.objects import NAMESPACE, SET
from tests.support.wait import wait_until

QUICK = ("--unreachable-timeout", "2", "--drain-timeout", "30", "--resume-timeout", "3")
IMPATIENT = ("--drain-timeout", "3")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Release:
    """One API server with two Pods of revision "old" and the wish for "new"."""

    def __init__(
        self, folder: Path, workload: Listeners, *, replicas: int = 2, replaces: bool = True
    ) -> None:
        self.workload = workload
        self.replicas = replicas
        self.server = ApiServer(workload, replicas, replaces=replaces)
        self._folder = folder

    def __enter__(self) -> Release:
        self.server.__enter__()
        self._kubeconfig = self.server.kubeconfig(self._folder)
        self.wait_ready(self.replicas)
        self.server.change_template("new")
        return self

    def __exit__(self, *error: object) -> None:
        self.server.__exit__(*error)

    def run(self, *arguments: str, connect: str = "pod-ip") -> int:
        flags = ("--kubeconfig", str(self._kubeconfig), "-n", NAMESPACE, "--connect", connect)
        return main([*flags, "--statefulset", SET, *QUICK, *arguments])

    def wait_ready(self, count: int) -> None:
        def ready() -> bool:
            pods = self.server.pods().values()
            return sum(p["status"]["conditions"][0]["status"] == "True" for p in pods) >= count

        wait_until(ready, f"{count} Pods are ready", deadline_s=10)

    def revisions(self) -> list[str]:
        pods = self.server.pods()
        return [
            pods[name]["metadata"]["labels"]["controller-revision-hash"] for name in sorted(pods)
        ]

    def deleted(self) -> list[str]:
        return [path.rpartition("/")[2] for method, path in self.server.calls if method == "DELETE"]

    def states(self) -> dict[str, str]:
        return {name: one.state for name, one in sorted(self.workload.running.items())}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path


@pytest.mark.parametrize("connect", ["pod-ip", "port-forward"])
def test_every_pod_is_drained_deleted_and_replaced_one_at_a_time(
    folder: Path, connect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Release(folder, Listeners()) as release:
        assert release.run(connect=connect) == Code.DONE
        assert release.revisions() == ["new", "new"]
        assert release.deleted() == ["worker-1", "worker-0"]
        assert all(one.state == "drained" for _, one in release.workload.past)
        shown = capsys.readouterr().err
        assert "worker-1: draining draining (dynamo_inflight)" in shown
        assert "worker-0: done drained" in shown


def test_a_second_run_has_nothing_to_do(folder: Path) -> None:
    with Release(folder, Listeners()) as release:
        assert release.run() == Code.DONE
        calls = len(release.server.calls)
        assert release.run() == Code.DONE
        assert not [m for m, _ in release.server.calls[calls:] if m in ("PATCH", "DELETE")]


def test_a_dry_run_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Release(folder, Listeners()) as release:
        assert release.run("--dry-run") == Code.DONE
        assert {method for method, _ in release.server.calls} == {"GET"}
        assert not any(one.asked for one in release.workload.running.values())
        shown = capsys.readouterr().out
        assert "1. worker-1 (revision old): serving: drain, delete" in shown
        assert "2 of 2 Pods would be replaced" in shown


def test_drains_that_discovery_does_not_confirm_at_first_are_repeated(folder: Path) -> None:
    with Release(folder, Listeners(old=Manners(unconfirmed=2))) as release:
        assert release.run() == Code.DONE
        assert all(one.asked == ["drain"] * 3 for _, one in release.workload.past)


def test_a_drain_that_always_fails_with_503_gives_the_pod_back(folder: Path) -> None:
    with Release(folder, Listeners(old=Manners(unconfirmed=-1))) as release:
        assert release.run(*IMPATIENT) == Code.REFUSED
        assert release.deleted() == []
        assert release.states() == {"worker-0": "serving", "worker-1": "serving"}
        assert release.workload.running["worker-0"].asked == []
        assert MARK not in release.server.pods()["worker-1"]["metadata"]["annotations"]


@pytest.mark.parametrize(
    "manners", [Manners(refuses=True), Manners(stuck=True), Manners(foreign=True)]
)
def test_a_pod_that_is_not_drained_is_never_deleted(folder: Path, manners: Manners) -> None:
    with Release(folder, Listeners(old=manners)) as release:
        assert release.run(*IMPATIENT) == Code.REFUSED
        assert release.deleted() == []
        assert release.states() == {"worker-0": "serving", "worker-1": "serving"}


def test_force_deletes_it_and_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Release(folder, Listeners(old=Manners(refuses=True))) as release:
        assert release.run("--force") == Code.DONE
        assert release.revisions() == ["new", "new"]
        assert "forced, not drained" in capsys.readouterr().err


def test_a_worker_that_does_not_answer_stops_the_release(folder: Path) -> None:
    with Release(folder, Listeners(old=Manners(silent=True))) as release:
        assert release.run() == Code.REFUSED
        assert release.deleted() == []


def test_other_worker_types_stop_by_their_grace_period_and_are_not_called_drained(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Release(folder, Listeners(old=Manners(drainable=False))) as release:
        assert release.run() == Code.DONE
        assert release.revisions() == ["new", "new"]
        assert not any(one.asked for _, one in release.workload.past)
        shown = capsys.readouterr().err
        assert "stopped, this worker type has no drain" in shown
        assert "drained" not in shown


def test_a_replacement_that_never_gets_ready_stops_the_release(folder: Path) -> None:
    with Release(folder, Listeners(new=Manners(serves=False))) as release:
        assert release.run("--replace-timeout", "2") == Code.NOT_REPLACED
        assert release.deleted() == ["worker-1"]
        assert release.states()["worker-0"] == "serving"


def test_a_replacement_that_is_ready_but_not_serving_is_waited_for(folder: Path) -> None:
    """No Pod follows: the controller is down, or the node pool is full."""
    with Release(folder, Listeners(), replaces=False) as release:
        assert release.run("--replace-timeout", "1") == Code.NOT_REPLACED
        assert release.deleted() == ["worker-1"]


def test_a_pod_that_vanishes_while_it_drains_is_waited_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Release(folder, Listeners(worker_1_old=Manners(stuck=True))) as release:
        vanishing = threading.Timer(1.5, release.server.vanish, ["worker-1"])
        vanishing.start()
        assert release.run("--drain-timeout", "30") == Code.DONE
        vanishing.join()
        assert release.deleted() == ["worker-0"]
        assert "vanished, not by this release" in capsys.readouterr().err


def test_ctrl_c_gives_the_pod_back_and_the_next_run_goes_on(folder: Path) -> None:
    with Release(folder, Listeners(worker_0_old=Manners(stuck=True))) as release:

        def interrupt() -> None:
            wait_until(lambda: "drain" in release.workload.running["worker-0"].asked, "it drains")
            signal.raise_signal(signal.SIGTERM)

        hand = threading.Thread(target=interrupt)
        hand.start()
        assert release.run("--drain-timeout", "60") == Code.INTERRUPTED
        hand.join()
        assert release.states()["worker-0"] == "serving"
        assert release.revisions() == ["old", "new"]
        release.workload.running["worker-0"].manners.stuck = False
        release.wait_ready(2)
        assert release.run() == Code.DONE
        assert release.deleted() == ["worker-1", "worker-0"]


def test_a_pod_drained_by_a_release_that_died_is_resumed_once_it_is_current(folder: Path) -> None:
    with Release(folder, Listeners()) as release:
        release.server.run(_mark(release.server, "worker-0"))
        release.workload.running["worker-0"].state = "drained"
        release.server.change_template("old")
        assert release.run() == Code.DONE
        assert release.states()["worker-0"] == "serving"
        assert MARK not in release.server.pods()["worker-0"]["metadata"]["annotations"]


async def _mark(server: ApiServer, name: str) -> None:
    server.pods()[name]["metadata"]["annotations"][MARK] = "draining"


def test_a_drained_pod_that_cannot_be_resumed_is_reported_as_out_of_service(folder: Path) -> None:
    with Release(folder, Listeners(old=Manners(stuck=True, resumes=False))) as release:
        assert release.run("--drain-timeout", "1") == Code.OUT_OF_SERVICE
        assert release.deleted() == []


def test_a_deletion_that_is_forbidden_gives_the_drained_pod_back(folder: Path) -> None:
    with Release(folder, Listeners()) as release:
        release.server.fail["DELETE"] = 403
        assert release.run() == Code.UNREACHABLE
        assert release.states() == {"worker-0": "serving", "worker-1": "serving"}


def test_a_set_that_its_controller_updates_by_itself_is_refused(folder: Path) -> None:
    with Release(folder, Listeners()) as release:
        release.server.strategy = "RollingUpdate"
        assert release.run() == Code.USAGE


def test_a_wrong_token_stops_before_anything_changes(folder: Path) -> None:
    token = folder / "token"
    token.write_text("wrong")
    with Release(folder, Listeners(old=Manners(token="right"))) as release:
        assert release.run("--token-file", str(token)) != Code.DONE
        assert release.deleted() == []
        token.write_text("right\n")
        assert release.run("--token-file", str(token)) == Code.DONE


def test_an_api_server_that_is_not_there_is_said_to_be_so(tmp_path: Path) -> None:
    with Release(tmp_path, Listeners()) as release:
        path = release._kubeconfig
        path.write_text(path.read_text().replace(str(release.server.port), "9"))
        assert release.run() == Code.UNREACHABLE


def test_usage_errors_are_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == Code.USAGE
    assert main(["--statefulset", "a", "--concurrency", "0"]) == Code.USAGE
    assert main(["--statefulset", "a", "--kubeconfig", "/nonexistent"]) == Code.USAGE
    capsys.readouterr()


def test_an_api_server_that_fails_for_a_while_delays_the_release(folder: Path) -> None:
    with Release(folder, Listeners()) as release:
        server = release.server

        def fail_and_recover() -> None:
            wait_until(lambda: release.deleted(), "the first Pod is deleted")
            server.fail["GET"] = 500
            server.drop_watches()
            calls = len(server.calls)
            wait_until(lambda: len(server.calls) > calls + 1, "the release asks again")
            del server.fail["GET"]

        hand = threading.Thread(target=fail_and_recover)
        hand.start()
        assert release.run() == Code.DONE
        hand.join()
        assert release.revisions() == ["new", "new"]


def test_a_release_that_was_killed_is_gone_on_with(folder: Path) -> None:
    """Its Pod is annotated and drained, nobody resumed it; the template is still the new one."""
    with Release(folder, Listeners()) as release:
        release.server.run(_mark(release.server, "worker-1"))
        release.workload.running["worker-1"].state = "drained"
        assert release.run() == Code.DONE
        assert release.deleted() == ["worker-1", "worker-0"]


def test_pods_by_label_are_replaced_by_their_age(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As for Grove: no StatefulSet says which revision is wanted."""
    with Release(folder, Listeners()) as release:
        by_label = ("--kubeconfig", str(release.server.kubeconfig(folder)), "-n", NAMESPACE)
        by_label += ("--selector", f"app={SET}", "--connect", "pod-ip", *QUICK)
        assert main([*by_label, "--created-before", "2001-01-01T00:00:00Z"]) == Code.DONE
        assert release.deleted() == []
        # Kubernetes keeps whole seconds: a Pod of this very second is not older than now.
        oldest = max(pod["metadata"]["creationTimestamp"] for pod in release.server.pods().values())
        wait_until(lambda: _now() > oldest, "the second is over")
        assert main([*by_label]) == Code.DONE
        assert release.deleted() == ["worker-1", "worker-0"]
        assert "to go on after an interruption add --created-before" in capsys.readouterr().err


def test_two_at_a_time_leave_one_serving(folder: Path) -> None:
    with Release(folder, Listeners(), replicas=3) as release:
        assert release.run("--concurrency", "2") == Code.DONE
        assert release.revisions() == ["new"] * 3
        assert len(release.deleted()) == 3


def test_a_controller_that_lags_behind_is_waited_for(folder: Path) -> None:
    with Release(folder, Listeners()) as release:
        release.server.unseen_reads = 3
        assert release.run() == Code.DONE
        assert release.revisions() == ["new", "new"]


def test_an_evicted_pod_counts_as_gone(folder: Path) -> None:
    with Release(folder, Listeners(worker_1_old=Manners(stuck=True))) as release:
        eviction = threading.Timer(1.5, release.server.evict, ["worker-1"])
        eviction.start()
        assert release.run("--replace-timeout", "3") == Code.NOT_REPLACED
        eviction.join()
        assert release.deleted() == []
