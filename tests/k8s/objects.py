"""Kubernetes objects as the API server double sends them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from aiohttp import web

Json = dict[str, Any]
NAMESPACE = "test"
SET = "worker"
REVISION = "controller-revision-hash"
GENERATION = 2  # of the StatefulSet


def pod(name: str, uid: str, revision: str, port: int) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": uid,
            "creationTimestamp": now(),
            "labels": {"app": SET, REVISION: revision},
            "annotations": {},
        },
        "spec": {
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "main", "ports": [{"name": "system", "containerPort": port}]}],
        },
        "status": {"podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "False"}]},
    }


def is_ready(pod: Json) -> bool:
    return bool(pod["status"]["conditions"][0]["status"] == "True")


def set_ready(pod: Json, ready: bool) -> None:
    pod["status"]["conditions"][0]["status"] = str(ready)


def failure(code: int, reason: str) -> web.Response:
    value = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason}
    return web.json_response({**value, "code": code}, status=code, reason=reason)


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def statefulset(replicas: int, target: str, strategy: str, observed: int) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": SET, "generation": GENERATION},
        "spec": {
            "serviceName": SET,
            "selector": {"matchLabels": {"app": SET}},
            "template": {},
            "updateStrategy": {"type": strategy},
        },
        "status": {
            "observedGeneration": observed,
            "replicas": replicas,
            "updateRevision": target,
        },
    }
