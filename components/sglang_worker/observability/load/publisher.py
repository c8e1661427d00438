"""Tells Dynamo's routers how many KV blocks each data-parallel rank uses.

Schedulers write their load into shared memory with every batch (SGLang balances by it), so it is
there without ``--enable-metrics`` and without KV events, on the leader for the ranks of every node.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from sglang_worker.engine import compat_streams, dynamo_compat_streams
from sglang_worker.engine.compat_streams import RankLoad
from sglang_worker.observability.load.blocks import LoadFilter, blocks_of

logger = logging.getLogger(__name__)

READ_INTERVAL_S = 0.1


class LoadPublisher:
    """`workers.service.Background` of every worker with schedulers.

    ``latest`` holds the last load of each rank, for metrics.
    """

    def __init__(
        self,
        endpoint: Any,
        tokenizer_manager: Any,
        page_tokens: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint = endpoint
        self._manager = tokenizer_manager
        self._page_tokens = page_tokens
        self._clock = clock
        self._filter = LoadFilter()
        self._task: asyncio.Task[None] | None = None
        self._failing = False
        self.latest: dict[int, RankLoad] = {}

    async def start(self) -> None:
        if not compat_streams.has_loads(self._manager):
            logger.warning("this SGLang shows no loads; routers will not know the used KV blocks")
            return
        publish = await dynamo_compat_streams.load_publisher(self._endpoint)
        self._task = asyncio.get_running_loop().create_task(self._run(publish))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, publish: Callable[[int, int], None]) -> None:
        while True:
            self.tell(publish)
            await asyncio.sleep(READ_INTERVAL_S)

    def tell(self, publish: Callable[[int, int], None]) -> None:
        """Read once and publish what is due; a failure is logged once until it has passed."""
        try:
            for load in compat_streams.read_loads(self._manager):
                self.latest[load.dp_rank] = load
                used = blocks_of(load.used_tokens, self._page_tokens)
                if self._filter.is_due(load.dp_rank, used, self._clock()):
                    publish(load.dp_rank, used)
        except Exception:
            if not self._failing:
                logger.exception("loads could not be read or published; trying again")
            self._failing = True
        else:
            self._failing = False
