from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("fake_worker.py")


class Reply:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningWorker:
    """The fake worker as a process; `call` is a plain HTTP client with a deadline."""

    def __init__(self, **options: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        described = self._line()
        self.port: int = described["port"]
        self.first_child: int = described["child"]
        self.phase_socket: str = described["phase_socket"]

    def wait_attached(self) -> RunningWorker:
        assert self._line() == {"attached": True}
        return self

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.process.stderr and self.process.stderr.read()
        return json.loads(text)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | Any = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = 10.0,
        host: str = "127.0.0.1",
    ) -> Reply:
        connection = http.client.HTTPConnection(host, self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            content = json.dumps(body).encode() if isinstance(body, dict) else body
            connection.request(method, path, body=content, headers=headers or {})
            answer = connection.getresponse()
            return Reply(answer.status, dict(answer.headers.items()), answer.read())

    def get(self, path: str, **more: Any) -> Reply:
        return self.call("GET", path, **more)

    def post(self, path: str, body: bytes | Any = None, **more: Any) -> Reply:
        return self.call("POST", path, body, **more)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def child(self) -> int:
        return self.post("/engine/echo").json["child"]

    def stop(self) -> None:
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill()
        self.process.wait()


def wait_until(condition: Callable[[], Any], timeout_s: float = 10.0, what: str = "") -> Any:
    """Poll until the condition is true; connection errors count as not yet."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if value := condition():
                return value
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout_s} s: {what or condition}")


def process_lives(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def start_worker() -> Iterator[Callable[..., RunningWorker]]:
    """Start fake workers; each is killed at the end of the test."""
    started: list[RunningWorker] = []

    def start(**options: Any) -> RunningWorker:
        worker = RunningWorker(**options)
        started.append(worker)
        return worker if options.get("load_s") else worker.wait_attached()

    yield start
    for worker in started:
        worker.stop()
        wait_until(lambda pid=worker.first_child: not process_lives(pid), what="child exit")


@pytest.fixture(scope="module")
def worker() -> Iterator[RunningWorker]:
    """One serving fake worker for all tests of a module that do not harm it."""
    running = RunningWorker().wait_attached()
    yield running
    running.stop()
