"""What docs/kubernetes.md and docs/upgrade.md state is what the code and the manifests hold."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

import pytest
from sglang_worker.config.flags import OWN_FLAGS

from deploy.k8s.release.codes import Code
from deploy.k8s.release.command import parser
from tests.k8s.custom_schemas import COMPONENT, POD_MONITOR, SERVICE, V1ALPHA1, V1BETA1
from tests.k8s.manifests import WORKER, all_workloads, dashboard_metrics
from tests.support.environment import REPOSITORY

KUBERNETES = (REPOSITORY / "docs" / "kubernetes.md").read_text()
UPGRADE = (REPOSITORY / "docs" / "upgrade.md").read_text()


def upstream(name: str) -> str:
    """A file of the ai-dynamo wheel, which our overlay hides from import."""
    files = importlib.metadata.files("ai-dynamo") or []
    (found,) = [one for one in files if str(one) == f"dynamo/sglang/{name}"]
    return Path(str(found.locate())).read_text()


@pytest.mark.parametrize("pattern", [r'flag_name="(--[a-z-]+)"', r'env_var="([A-Z_]+)"'])
def test_every_flag_and_variable_of_upstream_is_named(pattern: str) -> None:
    names = re.findall(pattern, upstream("backend_args.py"))
    assert len(names) > 10
    assert [name for name in names if f"`{name}`" not in UPGRADE] == []


def test_every_flag_and_variable_of_this_worker_is_named() -> None:
    names = [name for flag in OWN_FLAGS for name in (flag.name, flag.variable) if name]
    # Those that Dynamo's runtime has, and has the same way, are not a difference.
    shared = {
        *("DYN_SYSTEM_PORT", "DYN_SYSTEM_HOST", "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS"),
        *("DYN_HEALTH_CHECK_ENABLED", "DYN_CANARY_WAIT_TIME"),
        "DYN_HEALTH_CHECK_REQUEST_TIMEOUT",
    }
    assert [name for name in names if name not in shared and f"`{name}`" not in UPGRADE] == []


def test_every_exit_code_of_the_release_is_explained() -> None:
    rows = re.findall(r"^\| (\d+) \| ", KUBERNETES, re.MULTILINE)
    assert sorted(map(int, rows)) == sorted(int(code) for code in Code)
    for code in Code:
        assert f"{int(code)} " in (parser().epilog or "")


def test_the_flags_of_the_release_that_are_mentioned_exist() -> None:
    known = set(re.findall(r"--[a-z-]+", parser().format_help()))
    commands = re.findall(r"release\.py (.*)$", KUBERNETES, re.MULTILINE)
    used = {flag for line in commands for flag in re.findall(r"--[a-z-]+", line)}
    assert used and used <= known


def test_every_field_of_a_custom_kind_has_its_source() -> None:
    """All that the strict schemas allow is in the table of sources."""
    table = KUBERNETES[KUBERNETES.index("## Fields of custom kinds") :]
    fields = {
        name
        for schema in (V1BETA1, COMPONENT, V1ALPHA1, SERVICE, POD_MONITOR)
        for name in schema["properties"]
    }
    assert [name for name in sorted(fields) if not re.search(rf"\b{name}\b", table)] == []


def test_the_sums_of_the_manifests_are_the_ones_explained() -> None:
    periods = {one.spec["terminationGracePeriodSeconds"] for one in all_workloads(WORKER)}
    for seconds in periods:
        assert f"| {seconds} |" in KUBERNETES


def test_the_dashboard_asks_for_metrics_that_sglang_has() -> None:
    """Those of the runtime are looked up on a real worker where a real one is released."""
    import sglang

    source = Path(str(sglang.__path__[0])) / "srt" / "observability" / "metrics_collector.py"
    parts = re.compile("_(?:bucket|sum|count)$")
    names = {parts.sub("", name) for name in dashboard_metrics("sglang:")}
    assert names and not [name for name in names if f'"{name}"' not in source.read_text()]
