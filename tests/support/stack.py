"""A Dynamo deployment on loopback: frontend and workers that meet through a private folder."""

from __future__ import annotations

import contextlib
import http.client
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tests.support.client import HttpClient, OpenAIClient
from tests.support.environment import clean_environment, with_repository_on_path
from tests.support.ports import free_port
from tests.support.processes import ManagedProcess
from tests.support.wait import wait_until

Managed = TypeVar("Managed", bound=ManagedProcess)
NOT_UP_YET = (OSError, http.client.HTTPException)
PLANES = {
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_REQUEST_PLANE": "tcp",
    "DYN_RESPONSE_PLANE": "tcp",
    "DYN_EVENT_PLANE": "zmq",
    # Unset, each plane binds the machine's first outside address.
    "DYN_TCP_RPC_HOST": "127.0.0.1",
    "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
    "DYN_EVENT_PLANE_HOST": "127.0.0.1",
}
# Nobody asks a stack that is taken down; what is about the grace before an end sets its own.
NO_GRACE = {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0"}


class Frontend(ManagedProcess):
    """``python -m dynamo.frontend`` with its client."""

    http_port: int
    client: OpenAIClient
    # What the same stack started: without a running worker a model will never appear.
    neighbours: list[ManagedProcess]

    def wait_for_model(self, name: str, *, deadline_s: float = 60.0) -> None:
        def listed() -> bool:
            workers = [one for one in self.neighbours if isinstance(one, Worker)]
            if workers and not any(one.running for one in workers):
                workers[-1].require_running()
            return name in self.client.models()

        self.wait_for(
            listed,
            f"the frontend lists the model {name}",
            deadline_s=deadline_s,
            interval_s=0.2,
            ignore=NOT_UP_YET,
        )


class Worker(ManagedProcess):
    """A worker with a client for its system listener (None without a system port)."""

    system_port: int | None
    system: HttpClient | None


class Stack:
    """Starts processes that share one discovery folder; leaving it ends them, side by side."""

    def __init__(
        self, folder: Path | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        self._scratch = (
            None if folder else tempfile.TemporaryDirectory(prefix="sglang-worker-test-")
        )
        self.folder = folder or Path(self._scratch.name if self._scratch else ".")
        self.kv_folder = self.folder / "discovery"
        self.kv_folder.mkdir(parents=True, exist_ok=True)
        place = {"DYN_FILE_KV": str(self.kv_folder)}
        self._shared = {**PLANES, **NO_GRACE, **place, **(environ or {})}
        self._started: list[ManagedProcess] = []

    def environ(self, overrides: Mapping[str, str | None] | None = None) -> dict[str, str]:
        return clean_environment({**self._shared, **(overrides or {})})

    def start_frontend(
        self,
        *,
        router_mode: str = "round-robin",
        migration_limit: int = 0,
        http_port: int | None = None,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str | None] | None = None,
        ready: bool = True,
        ready_deadline_s: float = 60.0,
    ) -> Frontend:
        """Returns once the frontend answers HTTP; models may still be unknown.

        Not ``ready``: returns at once, so that workers start beside it. `Frontend.wait_for_model`
        waits for both.
        """
        port = http_port or free_port()
        command = [sys.executable, "-m", "dynamo.frontend", "--http-host", "127.0.0.1"]
        command += ["--http-port", str(port), "--router-mode", router_mode]
        command += ["--migration-limit", str(migration_limit), *arguments]
        frontend = self._start(Frontend, command, "frontend", environ)
        frontend.http_port = port
        frontend.neighbours = self._started
        frontend.client = OpenAIClient(f"http://127.0.0.1:{port}")
        if ready:
            frontend.wait_for(
                lambda: frontend.client.get("/v1/models").status == 200,
                "the frontend answers",
                deadline_s=ready_deadline_s,
                ignore=NOT_UP_YET,
            )
        return frontend

    def start_worker(
        self,
        *arguments: str,
        module: str = "dynamo.sglang",
        name: str = "worker",
        system_port: int | None = None,
        with_system_port: bool = True,
        environ: Mapping[str, str | None] | None = None,
        ready_path: str | None = None,
        ready_deadline_s: float = 120.0,
    ) -> Worker:
        """Starts ``python -m <module> <arguments>``.

        With ``ready_path`` (for example "/ready" or "/health") returns after it answered 200.
        """
        port = (system_port or free_port()) if with_system_port else None
        merged: dict[str, str | None] = {"DYN_SYSTEM_HOST": "127.0.0.1"}
        merged["DYN_SYSTEM_PORT"] = None if port is None else str(port)
        merged.update(environ or {})
        worker = self._start(Worker, [sys.executable, "-m", module, *arguments], name, merged)
        worker.system_port = port
        worker.system = None if port is None else HttpClient(f"http://127.0.0.1:{port}")
        if ready_path is not None and worker.system is not None:
            self.wait_ready(worker, ready_path, deadline_s=ready_deadline_s)
        return worker

    def wait_ready(
        self, worker: Worker, path: str = "/ready", *, deadline_s: float = 120.0
    ) -> None:
        system = worker.system
        if system is None:
            raise ValueError(f"{worker.name} was started without a system port")
        worker.wait_for(
            lambda: system.get(path).status == 200,
            f"{worker.name} answers {path} with 200",
            deadline_s=deadline_s,
            ignore=NOT_UP_YET,
        )

    def start_stub(self, model_folder: Path, *arguments: str, name: str = "stub") -> Worker:
        """A worker without an engine, see ``tests.support.stub_worker``; ready when it returns."""
        command = ("--model-path", str(model_folder), *arguments)
        environ = with_repository_on_path(self.environ())
        worker = self.start_worker(
            *command,
            module="tests.support.stub_worker",
            name=name,
            environ={"PYTHONPATH": environ["PYTHONPATH"]},
        )
        worker.wait_log(r"^stub ready ", deadline_s=60.0)
        return worker

    def _start(
        self,
        kind: type[Managed],
        command: Sequence[str],
        name: str,
        environ: Mapping[str, str | None] | None,
    ) -> Managed:
        label = f"{name}-{len(self._started) + 1}"
        process = kind(
            command,
            name=label,
            log_path=self.folder / "logs" / f"{label}.log",
            environ=self.environ(environ),
        )
        self._started.append(process)
        return process

    def stop(self) -> None:
        """All are told at once and end side by side, each whatever becomes of the others; a fault
        is raised at the end."""
        with contextlib.ExitStack() as leaving:
            if self._scratch is not None:
                leaving.callback(self._scratch.cleanup)
            for process in self._started:
                leaving.callback(process.stop)
            for process in self._started:
                process.ask_to_stop()

    def tails(self) -> str:
        return "\n".join(process.tail() for process in self._started)

    def __enter__(self) -> Stack:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and hasattr(error, "add_note"):
            error.add_note(self.tails())
        self.stop()


def wait_port_closed(port: int, *, deadline_s: float = 10.0) -> None:
    """Waits until nothing listens on a loopback port any more."""

    def closed() -> bool:
        try:
            HttpClient(f"http://127.0.0.1:{port}", timeout_s=1.0).get("/")
        except ConnectionRefusedError:
            return True
        except NOT_UP_YET:
            return False
        return False

    wait_until(closed, f"port {port} is closed", deadline_s=deadline_s)
