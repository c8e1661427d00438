"""Dynamo's publishers of what the router and the planner need from a worker (ai-dynamo 1.6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

GROUP_KEY = "sglang_worker_group_id"
"""Runtime data of a multi-node engine's card: the address that its nodes share, under the name that
Dynamo's own worker uses."""


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


def announce_no_blocks(publisher: Any) -> None:
    """One more event of the publisher's own numbering, which changes nobody's index.

    A router notices a lost event by the number of the next one. Raises what the runtime raises.
    """
    publisher.publish_stored([], [], [])


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


async def ask_once(client: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """The first chunk of any instance's answer. Raises what the runtime raises."""
    stream = await client.random(dict(request), annotated=False)
    async for chunk in stream:
        return dict(chunk)
    raise ConnectionError("the answer was empty")
