"""Relays SGLang's KV events to Dynamo's routers, one publisher per rank of this node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from sglang_worker.engine import dynamo_compat_streams
from sglang_worker.observability.kv_events.counters import COUNTERS, KvEventCounters
from sglang_worker.observability.kv_events.sources import KvSource
from sglang_worker.observability.kv_events.watcher import KvEventWatcher

logger = logging.getLogger(__name__)

BEAT_S = 10.0
"""A router whose queue was full learns no later than this after it caught up that it missed
something, also from a rank that has nothing more to tell."""


class KvEventRelay:
    """`workers.service.Background` of a node whose ranks publish events.

    ``worker_id``: the instance under which routers know the events, on a follower node the
    leader's. The runtime relays in its own threads; the watcher beside it only counts.
    """

    def __init__(
        self,
        endpoint: Any,
        sources: tuple[KvSource, ...],
        worker_id: Callable[[], int],
        *,
        local_indexer: bool = True,
        state_endpoint: str | None = None,
        counters: KvEventCounters = COUNTERS,
        beat_s: float = BEAT_S,
    ) -> None:
        self._endpoint = endpoint
        self._sources = sources
        self._worker_id = worker_id
        self._local_indexer = local_indexer
        self._state_endpoint = state_endpoint
        self._watcher = KvEventWatcher(sources, counters)
        self._publishers: list[Any] = []
        self._beat_s = beat_s
        self._beats: asyncio.Task[None] | None = None

    async def start(self) -> None:
        worker_id = self._worker_id()
        self._watcher.start()
        for source in self._sources:
            self._publishers.append(
                dynamo_compat_streams.relay_kv_events(
                    self._endpoint,
                    worker_id=worker_id,
                    dp_rank=source.dp_rank,
                    block_tokens=source.block_tokens,
                    zmq_endpoint=source.endpoint,
                    topic=source.topic,
                    local_indexer=self._local_indexer,
                    state_endpoint=self._state_endpoint,
                )
            )
            logger.info(
                "KV events of data-parallel rank %d: %s, as instance %d",
                source.dp_rank,
                source.endpoint,
                worker_id,
            )
        if self._local_indexer:
            # Without an index of its own the worker has nothing to recover from.
            self._beats = asyncio.get_running_loop().create_task(self._beat())

    async def _beat(self) -> None:
        """The event plane drops what a full queue cannot take and tells nobody; the router sees
        the gap at the next number, so there must always be a next one."""
        failing: set[int] = set()
        while True:
            await asyncio.sleep(self._beat_s)
            for source, publisher in zip(self._sources, self._publishers, strict=True):
                self._announce(source.dp_rank, publisher, failing)

    def _announce(self, dp_rank: int, publisher: Any, failing: set[int]) -> None:
        """A beat that fails is made up for by the next one; a row of them is told of once."""
        try:
            dynamo_compat_streams.announce_no_blocks(publisher)
        except Exception:
            if dp_rank not in failing:
                failing.add(dp_rank)
                logger.warning(
                    "routers may not notice lost KV events of data-parallel rank %d",
                    dp_rank,
                    exc_info=True,
                )
            return
        if dp_rank in failing:
            failing.remove(dp_rank)
            logger.info("KV events of data-parallel rank %d: announced again", dp_rank)

    def stop(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
        self._watcher.stop()
        publishers, self._publishers = self._publishers, []
        for publisher in publishers:
            publisher.shutdown()
