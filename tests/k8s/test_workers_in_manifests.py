"""What the manifests run and ask is what the worker accepts and answers."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import pytest
from sglang_worker.config.check import run_check
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.worker_config import WorkerConfig, WorkerType
from sglang_worker.ctl.command import parser as ctl_parser
from sglang_worker.lifecycle.shutdown import ShutdownTimes
from sglang_worker.system.frontdoor import BUILT_IN
from sglang_worker.system.state import Access
from sglang_worker.workers.table import ROWS

from tests.k8s.manifests import FRONTEND, OVERLAYS, WORKER, Workload, all_workloads

BUDGET = "sglang-worker/drain-budget-s"
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
IDENTIFIED = [pytest.param(one, id=one.where) for one in all_workloads(WORKER)]
FRONTENDS = [pytest.param(one, id=one.where) for one in all_workloads(FRONTEND)]


def mounted(one: Workload, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Arguments and variables with every mounted folder moved below ``folder``."""
    arguments, environ = [_in_image(word, folder) for word in one.arguments], one.environ
    for mount in one.main.get("volumeMounts", []):
        path = folder / mount["mountPath"].lstrip("/")
        path.mkdir(parents=True, exist_ok=True)
        if mount["name"] == "token":
            (path / "token").write_text("secret")
            environ = {k: v.replace(mount["mountPath"], str(path)) for k, v in environ.items()}
    return arguments, environ


def _in_image(word: str, folder: Path) -> str:
    """The checkpoints of the CPU image, for a check that wants the path to exist."""
    if not word.startswith("/opt/demo/"):
        return word
    path = folder / word.lstrip("/")
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text("{}")
    return str(path)


def configuration(one: Workload, folder: Path) -> WorkerConfig:
    return parse_worker_config(*mounted(one, folder))


@pytest.mark.parametrize("one", IDENTIFIED)
def test_every_command_line_passes_the_workers_own_check(one: Workload, tmp_path: Path) -> None:
    plan, code = run_check(*mounted(one, tmp_path), "static")
    assert (plan["errors"], code) == ([], 0)
    assert plan["system"]["port"] == one.ports["system"]
    assert plan["system"]["metadata_port"] == one.ports["metadata"]
    assert str(plan["system"]["token_file"]).endswith("/etc/sglang-worker/token")


def test_every_overlay_holds_a_worker_and_a_frontend() -> None:
    for module in (WORKER, FRONTEND):
        places = {one.where.partition(":")[0] for one in all_workloads(module)}
        assert places == set(OVERLAYS)


def test_the_graphs_cover_the_promised_worker_types(tmp_path: Path) -> None:
    types = {configuration(one, tmp_path).worker_type for one in all_workloads(WORKER)}
    assert types == {
        WorkerType.AGGREGATED,
        WorkerType.PREFILL,
        WorkerType.DECODE,
        WorkerType.EMBEDDING,
        WorkerType.NATIVE_MULTIMODAL,
    }


@pytest.mark.parametrize("one", IDENTIFIED)
def test_probes_ask_open_routes_of_the_listener_on_its_port(one: Workload) -> None:
    for probe in PROBES:
        get = one.main[probe]["httpGet"]
        assert one.ports[get["port"]] == int(one.environ["DYN_SYSTEM_PORT"])
        route = BUILT_IN[get["path"]]
        assert route.access is Access.OPEN and "GET" in route.methods
    paths = [one.main[probe]["httpGet"]["path"] for probe in PROBES]
    assert paths == ["/startup", "/ready", "/live"]


@pytest.mark.parametrize("one", IDENTIFIED)
def test_only_aggregated_workers_drain_before_they_stop(one: Workload, tmp_path: Path) -> None:
    drains = ROWS[configuration(one, tmp_path).worker_type].drainable
    assert ("lifecycle" in one.main) is drains
    assert (BUDGET in one.metadata.get("annotations", {})) is drains


@pytest.mark.parametrize("one", IDENTIFIED)
def test_the_grace_period_is_the_sum_of_its_parts(one: Workload, tmp_path: Path) -> None:
    """preStop (routing grace + drain budget), then SIGTERM: the shutdown budget, and what every
    later step may take at most before the watchdog would end it."""
    lifecycle = configuration(one, tmp_path).lifecycle
    times = ShutdownTimes(budget_s=lifecycle.shutdown_timeout_s)
    needed_s = times.budget_s + 2 * times.step_s + times.engine_s + times.margin_s
    if hook := one.main.get("lifecycle"):
        options = ctl_options(hook["preStop"]["exec"]["command"])
        drain_budget_s = float(one.metadata["annotations"][BUDGET])
        assert options.timeout == lifecycle.routing_grace_s + drain_budget_s
        needed_s += options.timeout
    assert one.spec["terminationGracePeriodSeconds"] == math.ceil(needed_s)


def ctl_options(command: list[str]) -> argparse.Namespace:
    assert command[:2] == ["sglang-worker", "ctl"]
    return ctl_parser().parse_args(command[2:])


@pytest.mark.parametrize(
    "one", [value for value in IDENTIFIED if "lifecycle" in value.values[0].main]
)
def test_the_prestop_command_is_one_that_ctl_understands(one: Workload) -> None:
    options = ctl_options(one.main["lifecycle"]["preStop"]["exec"]["command"])
    assert (options.action, options.wait) == ("drain", True)
    assert str(options.token_file) == one.environ["DYN_SYSTEM_TOKEN_FILE"]
    # Neither --url nor --port: the container's own DYN_SYSTEM_PORT.
    assert options.url is None and options.port is None


@pytest.mark.parametrize("one", IDENTIFIED)
def test_a_wedged_start_is_given_half_an_hour_and_a_wedged_worker_a_minute(one: Workload) -> None:
    def patience_s(probe: str) -> int:
        return int(one.main[probe]["periodSeconds"] * one.main[probe]["failureThreshold"])

    assert patience_s("startupProbe") == 1800
    assert patience_s("livenessProbe") == 60
    assert patience_s("readinessProbe") <= 5


@pytest.mark.parametrize("one", [*IDENTIFIED, *FRONTENDS])
def test_containers_run_as_nobody_on_a_read_only_root(one: Workload) -> None:
    assert one.spec["securityContext"]["runAsNonRoot"] is True
    assert one.spec["securityContext"]["runAsUser"] == 1000
    security = one.main["securityContext"]
    assert security["readOnlyRootFilesystem"] is True
    assert security["allowPrivilegeEscalation"] is False
    assert security["capabilities"] == {"drop": ["ALL"]}
    writable = {m["mountPath"] for m in one.main["volumeMounts"] if not m.get("readOnly")}
    assert "/tmp" in writable
    if one.module == WORKER:
        assert "/cache" in writable


@pytest.mark.parametrize("one", FRONTENDS)
def test_frontends_migrate_and_their_command_line_is_dynamos(
    one: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dynamo.frontend.main import parse_args

    monkeypatch.setattr("sys.argv", ["frontend", *one.arguments])
    for name, value in one.environ.items():
        monkeypatch.setenv(name, value)
    config = parse_args()[0]
    assert config.migration_limit >= 1
    assert config.http_port == one.ports["http"]
    assert int(one.environ["DYN_TCP_RESPONSE_STREAM_PORT"]) == one.ports["responses"]
