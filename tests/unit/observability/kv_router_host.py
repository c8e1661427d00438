"""Dynamo's KV router, the one inside a frontend, in a process that can be stopped:
``python -m … BLOCK_TOKENS BLOCK [BLOCK …]``, a block as its token ids joined by commas.

Prints, some times per second, one line with 1 for each block that it believes cached and 0 for the
others. Ends on SIGTERM.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from dynamo.llm import KvRouter, KvRouterConfig
from sglang_worker.config.worker_config import RuntimeSettings
from sglang_worker.engine import dynamo_compat


async def run(block_tokens: int, blocks: list[list[int]]) -> None:
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    settings = RuntimeSettings(discovery_backend="file", event_plane="zmq")
    runtime = dynamo_compat.create_runtime(settings, loop)
    router = KvRouter(runtime.endpoint("dynamo.backend.generate"), block_tokens, KvRouterConfig())
    while not ended.is_set():
        known = [await _known(router, block) for block in blocks]
        print("known", *known, flush=True)
        await asyncio.sleep(0.2)
    dynamo_compat.shutdown(runtime)


async def _known(router: KvRouter, block: list[int]) -> int:
    scores = await router.get_overlap_scores(block)
    return max((worker["device_blocks"] for worker in scores["workers"]), default=0)


if __name__ == "__main__":
    wanted = [[int(token) for token in text.split(",")] for text in sys.argv[2:]]
    asyncio.run(run(int(sys.argv[1]), wanted))
