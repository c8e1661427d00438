"""Which objects of this process the metrics are read from."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from sglang_worker.boot.startup import Started
from sglang_worker.engine import compat_streams
from sglang_worker.engine.capacity import read_capacity
from sglang_worker.engine.compat_streams import RankLoad
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.lifecycle.wiring import WorkerLifecycle
from sglang_worker.observability.attach import attach, sglang_series
from sglang_worker.observability.kv_events.counters import COUNTERS
from sglang_worker.observability.load.blocks import blocks_of
from sglang_worker.observability.load.publisher import LoadPublisher
from sglang_worker.observability.metrics.exposition import Exposition
from sglang_worker.observability.metrics.gc_pauses import GC_PAUSES
from sglang_worker.observability.metrics.kv_events import KvEventSource
from sglang_worker.observability.metrics.sources import (
    CacheLoad,
    CacheSource,
    DiscoverySource,
    LifecycleSource,
    RequestSource,
    RouteSource,
    RunnerSource,
    Source,
    WorkerSource,
)
from sglang_worker.system.routes import RouteTable
from sglang_worker.workers.service import WorkerService


def expose_worker(
    started: Started,
    service: WorkerService,
    lifecycle: WorkerLifecycle,
    table: RouteTable | None,
) -> Exposition:
    """Call it when the endpoints are served and the background work has begun."""
    sources = common_sources(started)
    sources["lifecycle"] = LifecycleSource(lifecycle)
    sources["requests"] = RequestSource(lifecycle, lambda: service.requests.cancelled)
    sources["discovery"] = DiscoverySource(lifecycle)
    if table is not None:
        sources["routes"] = RouteSource(lambda: table.answered)
    if (cache := _cache(started, service)) is not None:
        sources["cache"] = cache
    # The files of SGLang's series are those of all processes; the main one shows them once.
    sglang = (
        _sglang(started, worker_id=service.main.worker_id) if started.in_gateway is None else None
    )
    return attach(service.main.endpoint, sources, sglang)


def expose_host(started: Started, endpoint: Any, table: RouteTable | None) -> Exposition:
    """For the main process of several gateways: what there is once per engine. ``endpoint``: as
    for `expose_follower`."""
    GC_PAUSES.install()
    sources = common_sources(started)
    # Those who relay the events count them.
    del sources["kv_events"]
    if table is not None:
        sources["routes"] = RouteSource(lambda: table.answered)
    manager = cast(WorkerEngine, started.engine).tokenizer_manager
    sources["cache"] = _cache_of(started, lambda: compat_streams.read_loads(manager))
    return attach(endpoint, sources, _sglang(started, worker_id=int(endpoint.connection_id())))


def expose_follower(started: Started, endpoint: Any) -> Exposition:
    """For a node that serves nothing: ``endpoint`` is the leader's, of this process's runtime,
    not served here. Its schedulers' series, its runners and its KV event counters are shown."""
    GC_PAUSES.install()
    worker_id = int(endpoint.connection_id())
    return attach(endpoint, common_sources(started), _sglang(started, worker_id=worker_id))


def common_sources(started: Started) -> dict[str, Source]:
    """What every node of an engine knows."""
    engine, listener = started.engine, started.listener
    if started.in_gateway is not None:
        return {"kv_events": KvEventSource(COUNTERS)}
    return {
        "worker": WorkerSource(
            build=(started.config.worker_type.value, _version("sglang"), _version("ai-dynamo")),
            model_load_s=engine.started_in_s,
            engine_up=lambda: engine.death is None,
            healthy=None if listener is None else lambda: listener.state.healthy,
        ),
        "runners": RunnerSource(started.runner_reports),
        "kv_events": KvEventSource(COUNTERS),
    }


def _sglang(started: Started, *, worker_id: int) -> Any:
    """With the labels that Dynamo's own worker adds to SGLang's series."""
    address = started.config.endpoint
    model = started.config.model.served_model_names[0]
    labels = {
        "dynamo_namespace": address.namespace,
        "dynamo_component": address.component,
        "dynamo_endpoint": address.name,
        "worker_id": format(worker_id, "x"),
        "model": model,
        "model_name": model,
    }
    args = getattr(started.engine, "server_args", None)
    return sglang_series(bool(getattr(args, "enable_metrics", False)), labels)


def _cache(started: Started, service: WorkerService) -> CacheSource | None:
    """None for engines without SGLang schedulers."""
    if started.runners is None:
        return None
    publishers = [work for work in service.background if isinstance(work, LoadPublisher)]
    return _cache_of(
        started, lambda: [load for one in publishers for load in list(one.latest.values())]
    )


def _cache_of(started: Started, latest: Callable[[], Sequence[RankLoad]]) -> CacheSource:
    engine = cast(WorkerEngine, started.engine)
    capacity = read_capacity(engine.engine)
    # As the total is counted, and as the router hears it.
    page_tokens = int(engine.server_args.page_size or 1)

    def loads() -> Mapping[int, CacheLoad]:
        return {
            load.dp_rank: CacheLoad(
                used_blocks=blocks_of(load.used_tokens, page_tokens),
                hit_ratio=load.hit_ratio,
            )
            for load in latest()
        }

    return CacheSource(
        ranks=range(capacity.dp_ranks),
        blocks=capacity.total_kv_blocks,
        loads=loads,
        names=(started.config.model.served_model_names[0], started.config.endpoint.component),
        model_load_s=started.engine.started_in_s,
    )


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
