"""The manifests as `kubectl kustomize` renders them, and the containers in them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from tests.support.environment import REPOSITORY

Json = dict[str, Any]
DEPLOY = REPOSITORY / "deploy" / "k8s"
OPERATOR = ("aggregated", "disaggregated", "embedding", "multimodal")
PLAIN_OVERLAYS = ("overlays/gpu", "overlays/cpu-demo")
GRAPHS = tuple(
    f"operator/{version}/{name}" for version in ("v1beta1", "v1alpha1") for name in OPERATOR
)
OVERLAYS = (*PLAIN_OVERLAYS, *GRAPHS)
WORKER, FRONTEND = "dynamo.sglang", "dynamo.frontend"


def kubectl() -> str:
    """The machine's kubectl. CI has to have one; elsewhere its absence skips, saying so."""
    found = shutil.which("kubectl")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("kubectl is not installed")
        pytest.skip("kubectl is not installed: no manifest is rendered", allow_module_level=True)
    return found


@functools.cache
def render(folder: str) -> tuple[Json, ...]:
    command = [kubectl(), "kustomize", str(DEPLOY / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def of_kind(folder: str, kind: str) -> list[Json]:
    return [one for one in render(folder) if one["kind"] == kind]


class Workload(msgspec.Struct, frozen=True):
    """One Pod template. ``where`` names it in failures."""

    where: str
    metadata: Json
    spec: Json

    @property
    def main(self) -> Json:
        return next(one for one in self.spec["containers"] if one["name"] == "main")

    @property
    def module(self) -> str:
        """What ``python3 -m`` runs."""
        command = self.main["command"]
        return str(command[command.index("-m") + 1])

    @property
    def arguments(self) -> list[str]:
        command = self.main["command"]
        return [*command[command.index("-m") + 2 :], *self.main.get("args", [])]

    @property
    def environ(self) -> dict[str, str]:
        """Those with a plain value; what comes from the Pod's own fields is left out."""
        return {one["name"]: one["value"] for one in self.main.get("env", []) if "value" in one}

    @property
    def ports(self) -> dict[str, int]:
        return {one["name"]: one["containerPort"] for one in self.main.get("ports", [])}


def workloads(folder: str) -> Iterator[Workload]:
    for item in render(folder):
        where = f"{folder}: {item['metadata']['name']}"
        if item["kind"] in ("StatefulSet", "Deployment"):
            template = item["spec"]["template"]
            yield Workload(where, template["metadata"], template["spec"])
        elif item["kind"] == "DynamoGraphDeployment":
            beta = item["apiVersion"].endswith("/v1beta1")
            yield from (_components if beta else _services)(where, item["spec"])


def all_workloads(module: str) -> list[Workload]:
    return [one for folder in OVERLAYS for one in workloads(folder) if one.module == module]


def dashboard_metrics(prefix: str) -> set[str]:
    """Names of the dashboard's metrics that begin with ``prefix``; labels left out."""
    dashboard = json.loads((DEPLOY / "components/monitoring/sglang-worker.json").read_text())
    queries = [
        re.sub(r"\{[^}]*\}", "", target["expr"])
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    ]
    return {name for query in queries for name in re.findall(rf"{prefix}\w+", query)}


def _components(where: str, spec: Json) -> Iterator[Workload]:
    for one in spec["components"]:
        template = one["podTemplate"]
        yield Workload(f"{where}/{one['name']}", template["metadata"], template["spec"])


def _services(where: str, spec: Json) -> Iterator[Workload]:
    """v1alpha1 spreads one Pod over a service; this is the Pod that its fields describe."""
    for name, one in spec["services"].items():
        pod = dict(one["extraPodSpec"])
        main = {"name": "main", **pod.pop("mainContainer"), "env": one.get("envs", [])}
        for probe in ("readinessProbe", "livenessProbe"):
            if probe in one:
                main[probe] = one[probe]
        yield Workload(
            f"{where}/{name}", one.get("extraPodMetadata", {}), {**pod, "containers": [main]}
        )
