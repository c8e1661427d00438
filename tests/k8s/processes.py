"""Real workers as the Pods of the API server double: started, probed and stopped as processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks.drain_proof.fleet import WorkerKind
from tests.support.ports import free_port
from tests.support.stack import NOT_UP_YET, Stack, Worker

GRACE_S = "0.5"


class Processes:
    """The `Workload` of the double; every start of a Pod is a new process on a new port."""

    def __init__(self, stack: Stack, kind: WorkerKind, token_file: Path | None = None) -> None:
        self._stack = stack
        self._kind = kind
        self._token_file = token_file
        self.running: dict[str, Worker] = {}
        self.exit_codes: list[int] = []
        self.request_ports: dict[str, int] = {}

    async def start(self, name: str, revision: str) -> int:
        port, requests = free_port(), free_port()
        environ: dict[str, str | None] = {
            **self._kind.environ,
            "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": GRACE_S,
            "DYN_TCP_RPC_PORT": str(requests),
            "POD_NAME": name,
        }
        if self._token_file is not None:
            environ["DYN_SYSTEM_TOKEN_FILE"] = str(self._token_file)
        self.request_ports[name] = requests
        self.running[name] = self._stack.start_worker(
            *self._kind.arguments,
            module=self._kind.module,
            name=f"{name}-{revision}",
            system_port=port,
            environ=environ,
        )
        return port

    async def stop(self, name: str, uid: str) -> None:
        worker = self.running.pop(name)
        self.exit_codes.append(await asyncio.to_thread(worker.stop))

    async def ready(self, name: str) -> bool:
        worker = self.running.get(name)
        return worker is not None and await asyncio.to_thread(_answers, worker)


def _answers(worker: Worker) -> bool:
    if worker.system is None:
        return False
    try:
        return worker.system.get("/ready").status == 200
    except NOT_UP_YET:
        return False
