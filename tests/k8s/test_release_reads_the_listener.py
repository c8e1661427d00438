"""What a release concludes from the real system listener of this worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sglang_worker.config.worker_config import SystemSettings
from sglang_worker.ctl.client import WorkerClient
from sglang_worker.lifecycle.states import Answer
from sglang_worker.system.builtin import lifecycle_routes
from sglang_worker.system.listener import SystemListener
from sglang_worker.system.routes import RouteTable
from sglang_worker.system.state import Phase

from deploy.k8s.release.model import Kind, Verdict
from deploy.k8s.release.worker import Worker


class Lifecycle:
    """Drain is not confirmed by discovery, resume is."""

    async def drain(self) -> Answer:
        return Answer(503, {"state": "draining", "error": "not confirmed"})

    async def resume(self) -> Answer:
        return Answer(200, {"state": "serving"})


@pytest.fixture
async def listener() -> AsyncIterator[SystemListener]:
    running = SystemListener(SystemSettings(host="127.0.0.1", port=0))
    running.start()
    try:
        yield running
    finally:
        running.close()


def worker_of(listener: SystemListener) -> Worker:
    return Worker(WorkerClient(f"http://127.0.0.1:{listener.address[1]}"))


async def serve(listener: SystemListener, table: RouteTable, state: str | None) -> Worker:
    await listener.attach(table)
    await listener.publish_acknowledged(
        worker_id="7", state=state, phase=Phase.REGISTERED, started=True, healthy=True
    )
    return worker_of(listener)


async def test_a_loading_worker_is_starting(listener: SystemListener) -> None:
    view = await asyncio.to_thread(worker_of(listener).view)
    assert view.kind is Kind.STARTING


async def test_a_worker_with_a_lifecycle_can_be_drained(listener: SystemListener) -> None:
    table = RouteTable(lifecycle_routes(Lifecycle()))  # type: ignore[arg-type]
    worker = await serve(listener, table, "serving")
    view = await asyncio.to_thread(worker.view)
    assert (view.kind, view.state, view.reason) == (Kind.DRAINABLE, "serving", None)
    assert (await asyncio.to_thread(worker.drain)).verdict is Verdict.AGAIN
    assert (await asyncio.to_thread(worker.resume)).verdict is Verdict.ACCEPTED
    assert await asyncio.to_thread(worker.ready) is None


async def test_a_worker_of_another_type_has_no_drain(listener: SystemListener) -> None:
    worker = await serve(listener, RouteTable([]), None)
    assert (await asyncio.to_thread(worker.view)).kind is Kind.NO_DRAIN
    assert await asyncio.to_thread(worker.ready) is None
