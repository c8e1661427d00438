"""Schemas of the custom kinds, as far as their fields are known and used.

Written from the documents that docs/kubernetes.md names for every field; no field beyond those is
allowed, so that an unsourced one is noticed. Pod templates are checked elsewhere, as Pods.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
ANY: Schema = {"type": "object"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
QUANTITY: Schema = {"type": "string", "pattern": r"^\d+(\.\d+)?(m|Ki|Mi|Gi|Ti)?$"}


def closed(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def chosen(*values: str) -> Schema:
    return {"enum": list(values)}


METADATA = closed(
    ("name",),
    name=TEXT,
    namespace=TEXT,
    labels=TEXTS,
    annotations=closed(
        **{"nvidia.com/grove-update-strategy": chosen("RollingRecreate", "OnDelete", "Coherent")}
    ),
)
PLAIN_METADATA = closed(("name",), name=TEXT, namespace=TEXT, labels=TEXTS)

COMPONENT = closed(
    ("name", "type", "podTemplate"),
    name=TEXT,
    type=chosen("frontend", "worker", "prefill", "decode", "planner", "epp"),
    replicas=COUNT,
    sharedMemorySize=QUANTITY,
    podTemplate=closed(("spec",), metadata=closed(labels=TEXTS, annotations=TEXTS), spec=ANY),
)
V1BETA1 = closed(
    ("components",),
    backendFramework=chosen("sglang", "vllm", "trtllm"),
    components=listed(COMPONENT),
)

AMOUNTS = closed(cpu=QUANTITY, memory=QUANTITY, gpu=QUANTITY)
SERVICE = closed(
    ("componentType", "extraPodSpec"),
    componentType=chosen("frontend", "worker", "planner", "main"),
    subComponentType=chosen("prefill", "decode"),
    replicas=COUNT,
    envs=listed(ANY),
    resources=closed(requests=AMOUNTS, limits=AMOUNTS),
    sharedMemory=closed(size=QUANTITY),
    readinessProbe=ANY,
    livenessProbe=ANY,
    extraPodMetadata=closed(labels=TEXTS, annotations=TEXTS),
    extraPodSpec={"type": "object", "required": ["mainContainer"]},
)
V1ALPHA1 = closed(("services",), services={"type": "object", "additionalProperties": SERVICE})

POD_MONITOR = closed(
    ("selector", "podMetricsEndpoints"),
    selector=closed(("matchLabels",), matchLabels=TEXTS),
    podMetricsEndpoints=listed(closed(("port",), port=TEXT, path=TEXT, interval=TEXT)),
)

ALERT = closed(
    ("alert", "expr", "labels", "annotations"),
    alert={"type": "string", "pattern": "^[A-Z][A-Za-z0-9]*$"},
    expr=TEXT,
    labels=closed(("severity",), severity=chosen("warning", "critical")),
    annotations=closed(("summary", "description"), summary=TEXT, description=TEXT),
    **{"for": {"type": "string", "pattern": "^[0-9]+[smh]$"}},
)
PROMETHEUS_RULE = closed(
    ("groups",), groups=listed(closed(("name", "rules"), name=TEXT, rules=listed(ALERT)))
)

_SCHEMAS: dict[tuple[str, str], tuple[Schema, Schema]] = {
    ("nvidia.com/v1beta1", "DynamoGraphDeployment"): (METADATA, V1BETA1),
    ("nvidia.com/v1alpha1", "DynamoGraphDeployment"): (METADATA, V1ALPHA1),
    ("monitoring.coreos.com/v1", "PodMonitor"): (PLAIN_METADATA, POD_MONITOR),
    ("monitoring.coreos.com/v1", "PrometheusRule"): (PLAIN_METADATA, PROMETHEUS_RULE),
}


def of(api_version: str, kind: str) -> Schema:
    """KeyError for a kind that nobody described yet."""
    metadata, spec = _SCHEMAS[(api_version, kind)]
    return closed(
        ("apiVersion", "kind", "metadata", "spec"),
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=metadata,
        spec=spec,
    )
