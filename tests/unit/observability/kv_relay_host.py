"""A runtime with one KV event relay and no engine: ``python -m … ZMQ_ENDPOINT COUNTERS_FILE``.

The counters are written to the file several times per second, whole each time; the runtime's own
are on its system port. Ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import msgspec
from sglang_worker.config.worker_config import RuntimeSettings
from sglang_worker.engine import dynamo_compat
from sglang_worker.observability.kv_events.counters import COUNTERS
from sglang_worker.observability.kv_events.relay import KvEventRelay
from sglang_worker.observability.kv_events.sources import KvSource

BLOCK_TOKENS = 4


async def run(zmq_endpoint: str, file: Path) -> None:
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
    )
    await relay.start()
    while not ended.is_set():
        unfinished = file.with_suffix(".part")
        unfinished.write_bytes(msgspec.json.encode(COUNTERS.ranks))
        unfinished.replace(file)
        await asyncio.sleep(0.05)
    relay.stop()
    relay.stop()
    dynamo_compat.shutdown(runtime)


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], Path(sys.argv[2])))
