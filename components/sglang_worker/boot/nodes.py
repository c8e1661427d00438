"""The nodes of one engine find each other: later ones hand their runner reports to the first.

The first node serves one more endpoint, named after the address that all nodes of the engine share,
before it registers its model. So a follower learns under which instance its engine is known, and
ranks that disagree across nodes stop the start as they do on one node.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from sglang_worker.config.worker_config import EndpointAddress, WorkerConfig
from sglang_worker.engine import compat_ranks, dynamo_compat_streams
from sglang_worker.engine.dynamo_compat import ServedEndpoint
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.errors import StartupCheckError
from sglang_worker.runners import records, startup
from sglang_worker.runners.later import RunnerWatch

logger = logging.getLogger(__name__)

NODE_TIMEOUT_S = 300.0
"""All schedulers are up by then; a node's worker process needs seconds to say so."""
POLL_S = 0.05
RETRY_S = 0.5


def meeting_point(config: WorkerConfig, group: str) -> EndpointAddress:
    """``group``: `compat_ranks.group_address`, the same on every node of one engine."""
    digest = hashlib.sha256(group.encode()).hexdigest()[:12]
    return config.endpoint.sibling(f"engine_nodes_{digest}")


def alone(engine: WorkerEngine) -> bool:
    """Whether this node is the whole engine."""
    return compat_ranks.group_address(engine.engine.server_args) is None


class NodeBook:
    """What later nodes have reported, on the first node. Free of the runtime."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self.records: dict[int, Mapping[int, records.RankRecord]] = {}

    @property
    def missing(self) -> list[int]:
        return [node for node in range(1, self._nodes) if node not in self.records]

    def take(self, report: Any) -> str | None:
        """A node's report; a fault in it as one sentence, None when it was taken."""
        fields = report if isinstance(report, Mapping) else {}
        node, texts = fields.get("node_rank"), fields.get("records")
        if type(node) is not int or not 1 <= node < self._nodes:
            return f"node_rank {node!r} is refused; accepted: 1 to {self._nodes - 1}"
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            return "records must be a list of texts"
        try:
            found = [records.decode(text.encode()) for text in texts]
        except ValueError as failure:
            return f"records: {failure}"
        self.records[node] = {record.identity.rank: record for record in found}
        return None


async def gather(
    config: WorkerConfig,
    engine: WorkerEngine,
    runtime: Any,
    watch: RunnerWatch,
    stop: Callable[[], bool],
) -> None:
    """On the first node of several: wait for the others and join their reports to ``watch``.

    ``stop()`` true ends the wait. Raises StartupCheckError for ranks that disagree when strict,
    and for a node that does not report.
    """
    group = compat_ranks.group_address(engine.engine.server_args)
    if group is None:
        return
    book = NodeBook(compat_ranks.nodes(engine.engine.server_args))
    served = ServedEndpoint(runtime, meeting_point(config, group))
    served.serve(_reception(book, lambda: served.worker_id))
    await served.implicit_registration()
    logger.info("waiting for nodes %s of this engine", book.missing)
    await _until_complete(book, stop)
    if book.missing:
        return
    for found in book.records.values():
        startup.join(engine.engine, watch, found)


def _reception(
    book: NodeBook, worker_id: Callable[[], int]
) -> Callable[[Any, Any], AsyncIterator[dict[str, Any]]]:
    async def receive(request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        fault = book.take(request)
        if fault is None:
            # A text: JSON numbers of some readers end at 2**53.
            yield {"worker_id": str(worker_id())}
        else:
            logger.warning("a node's report was refused: %s", fault)
            yield {"error": fault}

    return receive


async def _until_complete(book: NodeBook, stop: Callable[[], bool]) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + NODE_TIMEOUT_S
    while book.missing and not stop():
        if loop.time() > deadline_s:
            raise StartupCheckError(
                f"node {book.missing[0]} of this engine has not reported its runners within "
                f"{NODE_TIMEOUT_S:g} s"
            )
        await asyncio.sleep(POLL_S)


class Leader:
    """The first node as a later one sees it through discovery."""

    def __init__(self, client: Any, worker_id: int) -> None:
        self._client = client
        self.worker_id = worker_id

    @property
    def listed(self) -> bool:
        """Until its runtime has ended; a drain does not change it."""
        return self.worker_id in self._client.instance_ids()

    @classmethod
    async def find(
        cls, config: WorkerConfig, engine: WorkerEngine, runtime: Any, watch: RunnerWatch | None
    ) -> Leader:
        """Wait for it and hand it this node's reports. Raises StartupCheckError when refused."""
        group = compat_ranks.group_address(engine.engine.server_args)
        if group is None:
            raise StartupCheckError("--node-rank needs --nnodes and --dist-init-addr")
        client = await runtime.endpoint(meeting_point(config, group).path).client()
        report = {
            "node_rank": compat_ranks.node_rank(engine.engine.server_args),
            "records": []
            if watch is None
            else [records.encode(record).decode() for record in watch.records.values()],
        }
        while True:
            await client.wait_for_instances()
            try:
                answer = await dynamo_compat_streams.ask_once(client, report)
            except Exception as failure:
                # An instance that ended stays listed for seconds.
                logger.info("the first node did not answer yet: %s", failure)
                await asyncio.sleep(RETRY_S)
                continue
            if "worker_id" not in answer:
                raise StartupCheckError(f"the first node refused this node: {answer.get('error')}")
            return cls(client, int(answer["worker_id"]))
