"""What a token worker publishes beside its answers: KV events and loads."""

from __future__ import annotations

from typing import Any

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import compat_ranks, compat_streams
from sglang_worker.engine.capacity import kv_block_tokens
from sglang_worker.engine.dynamo_compat import ServedEndpoint
from sglang_worker.observability.kv_events import settings
from sglang_worker.observability.kv_events.relay import KvEventRelay
from sglang_worker.observability.kv_events.sources import KvSource, sources_of
from sglang_worker.observability.load.publisher import LoadPublisher
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.service import Background


def token_background(context: WorkerContext, main: ServedEndpoint) -> tuple[Background, ...]:
    """For `WorkerService(background=…)` of every worker whose engine has KV caches."""
    engine = context.engine
    found: list[Background] = [
        LoadPublisher(
            main.endpoint, engine.tokenizer_manager, int(engine.server_args.page_size or 1)
        )
    ]
    sources = event_sources(engine)
    if sources:
        found.append(event_relay(context.config, main.endpoint, sources, lambda: main.worker_id))
    return tuple(found)


def event_sources(engine: Any) -> tuple[KvSource, ...]:
    """The KV event streams that this node's schedulers publish; empty when events are off."""
    args = engine.server_args
    wanted = settings.parse(args.kv_events_config)
    if wanted is None:
        return ()
    ranks = compat_ranks.node_share(engine.engine.server_args).leading()
    return sources_of(wanted, ranks, kv_block_tokens(args), compat_streams.event_endpoint)


def event_relay(
    config: WorkerConfig, endpoint: Any, sources: tuple[KvSource, ...], worker_id: Any
) -> KvEventRelay:
    return KvEventRelay(
        endpoint,
        sources,
        worker_id,
        local_indexer=True,
        state_endpoint=config.dynamo.get("kv_state_endpoint"),
    )
