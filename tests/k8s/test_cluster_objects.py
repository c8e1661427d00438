"""Who reaches whom, what discovery sees, what a release may do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.k8s.manifests import GRAPHS, OVERLAYS, PLAIN_OVERLAYS, WORKER, of_kind, render, workloads

Json = dict[str, Any]
FRONTEND_POD = {"app.kubernetes.io/name": "dynamo-frontend"}
WORKER_POD = {"app.kubernetes.io/name": "sglang-worker"}
ADMINISTRATOR = {"sglang-worker/administrator": "true"}
SCRAPER = {"app.kubernetes.io/name": "prometheus"}
STRANGER = {"app": "anything"}
OWN = "dynamo"


def matches(selector: Json | None, labels: dict[str, str]) -> bool:
    wanted = (selector or {}).get("matchLabels", {})
    return all(labels.get(name) == value for name, value in wanted.items())


def allowed(
    folder: str, target: dict[str, str], source: dict[str, str], namespace: str
) -> set[Any]:
    """Ports (names or numbers) on which Pods with ``source`` labels reach ``target`` Pods.

    As NetworkPolicies work: the union of all rules of all policies that select the target.
    """
    ports: set[Any] = set()
    for policy in of_kind(folder, "NetworkPolicy"):
        if not matches(policy["spec"]["podSelector"], target):
            continue
        for rule in policy["spec"]["ingress"]:
            if "from" not in rule or any(_peer(one, source, namespace) for one in rule["from"]):
                ports |= {port["port"] for port in rule["ports"]}
    return ports


def _peer(peer: Json, labels: dict[str, str], namespace: str) -> bool:
    spaces = peer.get("namespaceSelector")
    if spaces is None:
        return namespace == OWN and matches(peer["podSelector"], labels)
    return matches(spaces, {"kubernetes.io/metadata.name": namespace}) and matches(
        peer.get("podSelector"), labels
    )


@pytest.mark.parametrize("folder", OVERLAYS)
def test_frontends_reach_requests_and_metadata_and_not_the_system_port(folder: str) -> None:
    assert allowed(folder, WORKER_POD, FRONTEND_POD, OWN) == {"request", "metadata"}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_administrators_and_the_scraper_reach_the_system_port_alone(folder: str) -> None:
    assert allowed(folder, WORKER_POD, ADMINISTRATOR, OWN) == {"system"}
    assert allowed(folder, WORKER_POD, SCRAPER, "monitoring") == {"system"}
    assert allowed(folder, WORKER_POD, ADMINISTRATOR, "elsewhere") == set()
    assert allowed(folder, WORKER_POD, SCRAPER, "elsewhere") == set()


@pytest.mark.parametrize("folder", OVERLAYS)
def test_nobody_else_reaches_a_worker(folder: str) -> None:
    assert allowed(folder, WORKER_POD, STRANGER, OWN) == set()
    assert allowed(folder, WORKER_POD, STRANGER, "elsewhere") == set()
    transfers = allowed(folder, WORKER_POD, WORKER_POD, OWN)
    assert transfers == ({8998, 32768} if folder.endswith("disaggregated") else set())


@pytest.mark.parametrize("folder", OVERLAYS)
def test_clients_reach_the_frontend_and_workers_bring_it_their_answers(folder: str) -> None:
    assert allowed(folder, FRONTEND_POD, STRANGER, "elsewhere") == {"http"}
    assert allowed(folder, FRONTEND_POD, WORKER_POD, OWN) == {"http", "responses"}


@pytest.mark.parametrize("folder", OVERLAYS)
def test_named_ports_of_the_policies_exist_on_the_pods(folder: str) -> None:
    for one in workloads(folder):
        needed = (
            {"system", "request", "metadata"} if one.module == WORKER else {"http", "responses"}
        )
        assert needed <= set(one.ports)
        if one.module == WORKER:
            assert int(one.environ["DYN_TCP_RPC_PORT"]) == one.ports["request"]


@pytest.mark.parametrize("folder", PLAIN_OVERLAYS)
def test_discovery_may_read_and_write_what_it_needs_and_finds_the_services(folder: str) -> None:
    roles = {one["metadata"]["name"]: one for one in of_kind(folder, "Role")}
    verbs = {
        resource: set(rule["verbs"])
        for rule in roles["dynamo-sglang-discovery"]["rules"]
        for resource in rule["resources"]
    }
    for resource in ("endpoints", "endpointslices", "pods"):
        assert verbs[resource] == {"get", "list", "watch"}
    assert {"create", "patch", "delete", "list", "watch"} <= verbs["dynamoworkermetadatas"]
    accounts = {one.spec["serviceAccountName"] for one in workloads(folder)}
    assert accounts == {"dynamo-sglang"}
    for service in of_kind(folder, "Service"):
        labels = service["metadata"]["labels"]
        assert labels["nvidia.com/dynamo-discovery-backend"] == "kubernetes"
        assert labels["nvidia.com/dynamo-discovery-enabled"] == "true"


@pytest.mark.parametrize("folder", OVERLAYS)
def test_services_and_budgets_select_the_pods(folder: str) -> None:
    labels = {one.module: one.metadata["labels"] for one in workloads(folder)}
    selectors = [one["spec"]["selector"] for one in of_kind(folder, "Service")]
    assert len(of_kind(folder, "PodDisruptionBudget")) == 2
    selectors += [
        one["spec"]["selector"]["matchLabels"] for one in of_kind(folder, "PodDisruptionBudget")
    ]
    for selector in selectors:
        chosen = [m for m, own in labels.items() if matches({"matchLabels": selector}, own)]
        assert len(chosen) == 1


@pytest.mark.parametrize("folder", PLAIN_OVERLAYS)
def test_only_a_release_replaces_worker_pods(folder: str) -> None:
    (workers,) = of_kind(folder, "StatefulSet")
    assert workers["spec"]["updateStrategy"] == {"type": "OnDelete"}
    role = next(
        one for one in of_kind(folder, "Role") if one["metadata"]["name"] == "dynamo-sglang-release"
    )
    verbs = {res: set(rule["verbs"]) for rule in role["rules"] for res in rule["resources"]}
    assert verbs == {
        "pods": {"get", "list", "watch", "patch", "delete"},
        "pods/portforward": {"get", "create"},
        "statefulsets": {"get"},
    }


@pytest.mark.parametrize("folder", GRAPHS)
def test_grove_leaves_the_replacement_of_graph_pods_to_a_release(folder: str) -> None:
    (graph,) = of_kind(folder, "DynamoGraphDeployment")
    assert graph["metadata"]["annotations"] == {"nvidia.com/grove-update-strategy": "OnDelete"}


@pytest.mark.parametrize("folder", ("overlays/gpu", *GRAPHS))
def test_the_scraper_is_told_and_the_dashboard_is_there(folder: str) -> None:
    (monitor,) = of_kind(folder, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("system", "/metrics")
    assert matches(monitor["spec"]["selector"], WORKER_POD)
    (dashboard,) = of_kind(folder, "ConfigMap")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_gpu_overlay_asks_for_devices_where_they_are_and_shared_memory() -> None:
    (worker,) = [one for one in workloads("overlays/gpu") if one.module == WORKER]
    resources = worker.main["resources"]
    tensor_parallel = worker.arguments[worker.arguments.index("--tp-size") + 1]
    assert resources["requests"]["nvidia.com/gpu"] == tensor_parallel
    assert resources["limits"]["nvidia.com/gpu"] == tensor_parallel
    assert worker.spec["tolerations"][0]["key"] == "nvidia.com/gpu"
    shm = next(one for one in worker.spec["volumes"] if one["name"] == "shm")
    assert shm["emptyDir"]["medium"] == "Memory"


def test_no_secret_is_committed() -> None:
    assert not [one for folder in OVERLAYS for one in render(folder) if one["kind"] == "Secret"]
