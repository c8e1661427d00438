"""The peers without which a worker is of no use, and the wait for the first of them.

Prefill and decode workers both register first and then wait: a frontend lists their model once it
knows both. `/startup` says "waiting for peers" meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from sglang_worker.config.endpoint import default_component
from sglang_worker.config.worker_config import EndpointAddress, WorkerConfig, WorkerType

# Its instances come from ready Pods alone. Two Pods that each are ready only after the other one
# would wait for ever.
READINESS_DECIDES = frozenset({"kubernetes"})
PEERS: Mapping[WorkerType, WorkerType] = {
    WorkerType.PREFILL: WorkerType.DECODE,
    WorkerType.DECODE: WorkerType.PREFILL,
    WorkerType.NATIVE_MULTIMODAL_PREFILL: WorkerType.NATIVE_MULTIMODAL_DECODE,
    WorkerType.NATIVE_MULTIMODAL_DECODE: WorkerType.NATIVE_MULTIMODAL_PREFILL,
    WorkerType.INTERNAL_MULTIMODAL_PREFILL: WorkerType.INTERNAL_MULTIMODAL_DECODE,
    WorkerType.INTERNAL_MULTIMODAL_DECODE: WorkerType.INTERNAL_MULTIMODAL_PREFILL,
}


def peer_address(config: WorkerConfig) -> EndpointAddress | None:
    """Where this worker's peers serve, or None when it needs none or they cannot be known.

    They are known under the default component names only: ``--endpoint`` of this worker says
    nothing about theirs.
    """
    peer = PEERS.get(config.worker_type)
    if peer is None or config.runtime.discovery_backend in READINESS_DECIDES:
        return None
    if config.endpoint.component != default_component(config.worker_type):
        return None
    return EndpointAddress(config.endpoint.namespace, default_component(peer), config.endpoint.name)
