"""What a token worker publishes beside its answers: KV events, loads, forward-pass metrics."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import compat_ranks, compat_streams
from sglang_worker.engine.capacity import kv_block_tokens
from sglang_worker.engine.dynamo_compat import ServedEndpoint
from sglang_worker.observability.forward_passes import ForwardPassRelay
from sglang_worker.observability.kv_events import settings
from sglang_worker.observability.kv_events.relay import KvEventRelay
from sglang_worker.observability.kv_events.sources import KvSource, sources_of
from sglang_worker.observability.load.publisher import LoadPublisher
from sglang_worker.runners.folder import VARIABLE as REPORT_FOLDER
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
    return (*found, *stream_relays(context.config, engine, main.endpoint, lambda: main.worker_id))


def stream_relays(
    config: WorkerConfig, engine: Any, endpoint: Any, worker_id: Callable[[], int]
) -> tuple[Background, ...]:
    """What this node's schedulers publish, relayed as coming from instance ``worker_id``."""
    relays: list[Background] = []
    if sources := event_sources(engine):
        relays.append(
            KvEventRelay(
                endpoint,
                sources,
                worker_id,
                state_endpoint=config.dynamo.get("kv_state_endpoint"),
            )
        )
    share = compat_ranks.node_share(engine.engine.server_args)
    base = getattr(engine.server_args, "forward_pass_metrics_ipc_name", None)
    folder = os.environ.get(REPORT_FOLDER)
    if base and folder and (ranks := share.leading(share.pp_size - 1)):
        relays.append(ForwardPassRelay(endpoint, base, ranks, Path(folder), worker_id))
    return tuple(relays)


def event_sources(engine: Any) -> tuple[KvSource, ...]:
    """The KV event streams that this node's schedulers publish; empty when events are off."""
    args = engine.server_args
    wanted = settings.parse(args.kv_events_config)
    if wanted is None:
        return ()
    ranks = compat_ranks.node_share(engine.engine.server_args).leading()
    return sources_of(wanted, ranks, kv_block_tokens(args), compat_streams.event_endpoint)
