"""Every rendered object against the schemas of three Kubernetes versions, strictly and offline."""

from __future__ import annotations

from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from tests.k8s import custom_schemas
from tests.k8s.manifests import GRAPHS, OVERLAYS, Workload, render, workloads

Json = dict[str, Any]
VERSIONS = ("1.31", "1.34", "1.37")
CUSTOM_GROUPS = ("nvidia.com/", "monitoring.coreos.com/")


def is_custom(item: Json) -> bool:
    return str(item["apiVersion"]).startswith(CUSTOM_GROUPS)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", ("crd", *OVERLAYS))
def test_objects_of_kubernetes_are_valid(folder: str, version: str) -> None:
    for item in render(folder):
        if not is_custom(item):
            kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("folder", GRAPHS)
def test_pods_inside_graphs_are_valid_pods(folder: str, version: str) -> None:
    for one in workloads(folder):
        kubernetes_validate.validate(as_pod(one), version, strict=True)


@pytest.mark.parametrize("folder", OVERLAYS)
def test_custom_objects_use_known_fields_only(folder: str) -> None:
    for item in render(folder):
        if is_custom(item):
            jsonschema.validate(item, custom_schemas.of(item["apiVersion"], item["kind"]))


@pytest.mark.parametrize("folder", OVERLAYS)
def test_no_object_is_there_twice_and_all_are_in_the_overlays_namespace(folder: str) -> None:
    seen = set()
    for item in render(folder):
        key = (item["kind"], item["metadata"]["name"])
        assert key not in seen
        seen.add(key)
        if item["kind"] != "Namespace":
            assert item["metadata"]["namespace"].startswith("dynamo")


def test_a_misspelt_field_is_found() -> None:
    """The checks above are worth something only if they are strict."""
    item = next(one for one in render("overlays/gpu") if one["kind"] == "StatefulSet")
    wrong = {**item, "spec": {**item["spec"], "updateStratgy": {}}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)
    graph = next(one for one in render(GRAPHS[0]) if one["kind"] == "DynamoGraphDeployment")
    wrong = {**graph, "spec": {**graph["spec"], "component": []}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, custom_schemas.of(graph["apiVersion"], graph["kind"]))


def as_pod(one: Workload) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "any", **one.metadata},
        "spec": one.spec,
    }
