"""The deployment under test: a real frontend and workers of one kind, started as processes."""

from __future__ import annotations

import asyncio
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil

from tests.support.client import Reply
from tests.support.environment import with_repository_on_path
from tests.support.stack import NOT_UP_YET, Frontend, Stack, Worker

STATE_POLL_S = 0.01


class WorkerKind(msgspec.Struct, frozen=True):
    """How one kind of worker is started. ``ready_path`` answers 200 once it serves."""

    name: str
    module: str
    arguments: tuple[str, ...]
    model: str
    environ: Mapping[str, str] = {}
    ready_path: str = "/ready"
    ready_log: str | None = None
    drains: bool = True


def stub_kind(model_folder: Path, delay_ms: float = 2.0) -> WorkerKind:
    """Workers without an engine: for the harness itself."""
    return WorkerKind(
        name="stub",
        module="tests.unit.lifecycle.stub_worker",
        arguments=("--model-path", str(model_folder), "--delay-ms", str(delay_ms)),
        model="stub",
        environ=with_repository_on_path({}),
        ready_log=r"^stub ready ",
    )


def real_kind(checkpoint: Path, *arguments: str) -> WorkerKind:
    return WorkerKind(
        name="worker",
        module="dynamo.sglang",
        arguments=("--model-path", str(checkpoint), "--served-model-name", "demo", *arguments),
        model="demo",
    )


def upstream_kind(checkpoint: Path) -> WorkerKind:
    """Upstream's worker of the same wheel: site-packages first on the path hides our overlay. The
    CPU platform serves it too."""
    from sglang_worker.reference_platform.defaults import process_environment

    return WorkerKind(
        name="upstream",
        module="dynamo.sglang",
        arguments=("--model-path", str(checkpoint), "--served-model-name", "demo"),
        model="demo",
        environ={**process_environment(), "PYTHONPATH": sysconfig.get_path("purelib")},
        ready_path="/health",
        drains=False,
    )


class Fleet:
    """Two workers and a frontend; workers are replaced in place."""

    def __init__(self, stack: Stack, kind: WorkerKind, grace_s: float) -> None:
        self._stack = stack
        self.kind = kind
        self.grace_s = grace_s
        self.workers: list[Worker] = []
        self.frontend: Frontend

    async def start(self, count: int, migration_limit: int, **environ: str) -> None:
        """Workers start one after the other: two engines loading at once need two cores each."""
        self.frontend = await asyncio.to_thread(
            self._stack.start_frontend, migration_limit=migration_limit, environ=environ
        )
        self.workers = [await self.start_worker() for _ in range(count)]
        await asyncio.to_thread(self.frontend.wait_for_model, self.kind.model, deadline_s=120.0)

    async def start_worker(self) -> Worker:
        environ = {
            **self.kind.environ,
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": str(self.grace_s),
        }
        worker = self._stack.start_worker(
            *self.kind.arguments,
            module=self.kind.module,
            name=self.kind.name,
            environ=environ,
        )
        await asyncio.to_thread(self._wait_ready, worker)
        return worker

    def _wait_ready(self, worker: Worker) -> None:
        if self.kind.ready_log is not None:
            worker.wait_log(self.kind.ready_log, deadline_s=180.0)
            return
        self._stack.wait_ready(worker, self.kind.ready_path, deadline_s=180.0)

    async def restart_frontend(self, migration_limit: int) -> None:
        await asyncio.to_thread(self.frontend.stop)
        self.frontend = await asyncio.to_thread(
            self._stack.start_frontend, migration_limit=migration_limit
        )
        await asyncio.to_thread(self.frontend.wait_for_model, self.kind.model, deadline_s=120.0)


def scheduler_of(worker: Worker) -> psutil.Process:
    """The engine's scheduler process, by its title."""
    for process in psutil.Process(worker.pid).children(recursive=True):
        if "scheduler" in " ".join(process.cmdline()) + process.name():
            return process
    raise LookupError(f"{worker.name} has no scheduler process")


async def post(worker: Worker, path: str) -> Reply:
    assert worker.system is not None
    return await asyncio.to_thread(worker.system.post, path, {})


async def state(worker: Worker) -> dict[str, Any]:
    assert worker.system is not None
    reply = await asyncio.to_thread(worker.system.get, "/engine/status")
    body: dict[str, Any] = reply.json()
    return body


async def until_state(worker: Worker, wanted: str, deadline_s: float = 60.0) -> None:
    """Raises asyncio.TimeoutError with the last state in its message."""
    last: dict[str, Any] = {}

    async def poll() -> None:
        nonlocal last
        while True:
            last = await _state_or_nothing(worker)
            if last.get("state") == wanted:
                return
            await asyncio.sleep(STATE_POLL_S)

    try:
        await asyncio.wait_for(poll(), deadline_s)
    except asyncio.TimeoutError:
        raise asyncio.TimeoutError(f"{worker.name} is not {wanted}: {last}") from None


async def _state_or_nothing(worker: Worker) -> dict[str, Any]:
    try:
        return await state(worker)
    except (*NOT_UP_YET, ValueError):
        return {}
