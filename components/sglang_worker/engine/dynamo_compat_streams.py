"""Dynamo's publishers of what the router and the planner need from a worker (ai-dynamo 1.6.1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

GROUP_KEY = "sglang_worker_group_id"
"""Runtime data of the leader's card by which the other nodes of its engine find it."""


def relay_kv_events(
    endpoint: Any,
    *,
    worker_id: int,
    dp_rank: int,
    block_tokens: int,
    zmq_endpoint: str,
    topic: str,
    local_indexer: bool,
    state_endpoint: str | None,
) -> Any:
    """Dynamo's KvEventPublisher: subscribes to one rank's stream until ``shutdown()``."""
    from dynamo.llm import KvEventPublisher

    return KvEventPublisher(
        endpoint=endpoint,
        worker_id=worker_id,
        kv_block_size=block_tokens,
        zmq_endpoint=zmq_endpoint,
        zmq_topic=topic,
        enable_local_indexer=local_indexer,
        dp_rank=dp_rank,
        kv_state_endpoint=state_endpoint,
    )


async def load_publisher(endpoint: Any) -> Callable[[int, int], None]:
    """``publish(dp_rank, used_blocks)`` on the event plane."""
    from dynamo.llm import WorkerMetricsPublisher

    publisher = WorkerMetricsPublisher()
    await publisher.create_endpoint(endpoint)

    def publish(dp_rank: int, used_blocks: int) -> None:
        publisher.publish(dp_rank, kv_used_blocks=used_blocks)

    return publish


def relay_forward_passes(endpoint: Any, zmq_endpoint: str) -> Any:
    """Dynamo's FpmEventRelay for one rank's stream until ``shutdown()``."""
    from dynamo.llm import FpmEventRelay

    return FpmEventRelay(endpoint=endpoint, zmq_endpoint=zmq_endpoint)


async def leader_of(endpoint: Any, group: str, timeout_s: float | None = None) -> tuple[Any, int]:
    """Dynamo's Client of the endpoint, and the instance whose card carries ``group``.

    Waits until it is registered. Raises TimeoutError or what discovery raises.
    """
    client = await endpoint.client()
    waiting = client.wait_for_instance_by_runtime_data(GROUP_KEY, group)
    return client, int(await asyncio.wait_for(waiting, timeout_s))
