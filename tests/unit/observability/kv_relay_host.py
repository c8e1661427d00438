"""A runtime with one KV event relay and no engine:
``python -m … ZMQ_ENDPOINT COUNTERS_FILE [MODEL_FOLDER]``.

The counters are written to the file several times per second, whole each time; the runtime's own
are on its system port. With a model folder a card is registered, so that routers find the events.
Ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
from sglang_worker.config.worker_config import RuntimeSettings
from sglang_worker.engine import dynamo_compat
from sglang_worker.observability.kv_events.counters import COUNTERS
from sglang_worker.observability.kv_events.relay import KvEventRelay
from sglang_worker.observability.kv_events.sources import KvSource

BLOCK_TOKENS = 4
BEAT_S = 1.0


async def run(zmq_endpoint: str, file: Path, model: str | None) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    settings = RuntimeSettings(discovery_backend="file", event_plane="zmq")
    runtime = dynamo_compat.create_runtime(settings, loop)
    endpoint = runtime.endpoint("dynamo.backend.generate")
    relay = KvEventRelay(
        endpoint,
        (KvSource(0, zmq_endpoint, "", BLOCK_TOKENS),),
        lambda: int(endpoint.connection_id()),
        beat_s=BEAT_S,
    )
    serving = None if model is None else asyncio.ensure_future(_serve(endpoint, model))
    await relay.start()
    while not ended.is_set():
        unfinished = file.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(COUNTERS.ranks))
        unfinished.replace(file)
        await asyncio.sleep(0.05)
    relay.stop()
    relay.stop()
    dynamo_compat.shutdown(runtime)
    if serving is not None:
        serving.cancel()


async def _serve(endpoint: Any, model: str) -> None:
    """The card of a worker whose events a router may use; requests get no answer."""
    from dynamo.llm import ModelInput, ModelRuntimeConfig, ModelType, WorkerType, register_model

    async def silent(request: Any, context: Any) -> Any:
        return
        yield

    card = ModelRuntimeConfig()
    card.kv_event_publishing_enabled = card.enable_local_indexer = True
    card.total_kv_blocks = 1_000_000
    serving = asyncio.ensure_future(endpoint.serve_endpoint(silent))
    await register_model(
        ModelInput.Tokens,
        ModelType.Completions,
        endpoint,
        model,
        "events",
        kv_cache_block_size=BLOCK_TOKENS,
        worker_type=WorkerType.Aggregated,
        runtime_config=card,
        ignore_weights=True,
    )
    print("registered", flush=True)
    await serving


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None))
