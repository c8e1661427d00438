"""A Pod of the Kubernetes client as the release's own value."""

from __future__ import annotations

from typing import Any

from .model import Pod

MARK = "sglang-worker/release"
PORT_NAME = "system"
PORT_VARIABLE = "DYN_SYSTEM_PORT"


def pod_of(item: Any, revision_label: str, port: int) -> Pod:
    """``item``: V1Pod. ``port`` is used where the Pod names no listener port of its own."""
    metadata, status = item.metadata, item.status
    conditions = (status and status.conditions) or []
    return Pod(
        name=metadata.name,
        uid=metadata.uid,
        address=status.pod_ip if status else None,
        port=_port(item.spec) or port,
        revision=(metadata.labels or {}).get(revision_label),
        created_s=metadata.creation_timestamp.timestamp() if metadata.creation_timestamp else 0.0,
        ready=any(one.type == "Ready" and one.status == "True" for one in conditions),
        terminating=metadata.deletion_timestamp is not None,
        marked=MARK in (metadata.annotations or {}),
        grace_s=float(item.spec.termination_grace_period_seconds or 30),
    )


def is_over(item: Any) -> bool:
    """Evicted or failed as a whole: the object stays, its containers are gone for good."""
    return bool(item.status and item.status.phase in ("Succeeded", "Failed"))


def _port(spec: Any) -> int | None:
    for container in spec.containers or []:
        for port in container.ports or []:
            if port.name == PORT_NAME:
                return int(port.container_port)
        for variable in container.env or []:
            if variable.name == PORT_VARIABLE and (variable.value or "").isdigit():
                return int(variable.value) or None
    return None
