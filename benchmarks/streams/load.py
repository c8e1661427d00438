"""Many open token streams on one real worker, by way of the runtime's client and no frontend."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.checkpoints import checkpoint
from tests.support.exposition import OWN, Scrape
from tests.support.ports import free_port
from tests.support.stack import PLANES

START_S = 180.0
PROMPT_TOKENS = 8


def cpu_seconds(pid: int) -> float:
    """User and system time of one process, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Load:
    """``received`` counts the tokens of all streams. Streams begin again when they end; the first
    answers differ in length, so that not all begin anew at once."""

    def __init__(self, client: Any, tokens: int) -> None:
        self._client = client
        self._tokens = tokens
        self._tasks: list[asyncio.Task[None]] = []
        self.received = 0
        self.failures = 0

    def open(self, streams: int) -> None:
        chosen = random.Random(7)
        for _ in range(streams):
            prompt = [chosen.randrange(100, 900) for _ in range(PROMPT_TOKENS)]
            first = chosen.randint(1, self._tokens)
            self._tasks.append(asyncio.create_task(self._run(prompt, first)))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, prompt: list[int], length: int) -> None:
        while True:
            request = {
                "model": "m",
                "token_ids": prompt,
                "stop_conditions": {"max_tokens": length, "ignore_eos": True},
                "sampling_options": {"temperature": 0.0},
                "output_options": {},
            }
            length = self._tokens
            try:
                async for item in await self._client.random(request):
                    self.received += len((item.data() or {}).get("token_ids") or ())
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.failures += 1
                print(f"a stream failed: {error}", file=sys.stderr)
                await asyncio.sleep(1.0)


class Worker:
    """The worker process; ``scrape`` goes through its public listener."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.pid = process.pid
        self._port = port
        self.log = log

    async def get(self, path: str) -> tuple[int, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        writer.close()
        if b"chunked" in head.lower():
            body = b"".join(_chunks(body))
        return int(head.split()[1]), body

    async def scrape(self) -> Scrape:
        status, body = await self.get("/metrics")
        if status != 200:
            raise RuntimeError(f"/metrics answered {status}")
        return Scrape(body.decode())

    async def until(self, name: str, least: float, deadline_s: float) -> float:
        """Seconds until the worker's own metric ``name`` is at least that."""
        began_s = time.monotonic()
        while (seen := (await self.scrape()).value(OWN + name)) < least:
            if time.monotonic() > began_s + deadline_s:
                raise RuntimeError(f"{name} is {seen}, not {least}, after {deadline_s} s")
            await asyncio.sleep(0.5)
        return time.monotonic() - began_s


def _chunks(body: bytes) -> list[bytes]:
    found = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        found.append(rest[:length])
        body = rest[length + 2 :] if length else b""
    return found


@asynccontextmanager
async def running_worker(
    flags: Sequence[str], before: str = "pass"
) -> AsyncIterator[tuple[Worker, Any]]:
    """A worker of the demo's dense model, ready, and a client of its endpoint. ``before``: a
    statements that the worker's process runs first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="sglang-worker-bench-") as folder:
        shared = {**PLANES, "DYN_FILE_KV": f"{folder}/kv", "OMP_NUM_THREADS": "1"}
        # The runtime would log a line per request, on both sides.
        shared |= {"OMP_WAIT_POLICY": "PASSIVE", "DYN_LOG": "warn"}
        os.environ.update(shared)
        log = Path(folder) / "worker.log"
        process = _start(flags, before, port, log)
        worker = Worker(process, port, log)
        try:
            await _ready(worker, process)
            yield worker, await _client()
        except BaseException:
            print(log.read_text(errors="replace")[-3000:], file=sys.stderr)
            raise
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _start(flags: Sequence[str], before: str, port: int, log: Path) -> subprocess.Popen[bytes]:
    program = f"{before}\nimport sys\nfrom sglang_worker.cli import main\nsys.exit(main())"
    command = [sys.executable, "-c", program, "--model-path", str(checkpoint("dense"))]
    environ = {**os.environ, "DYN_SYSTEM_HOST": "127.0.0.1", "DYN_SYSTEM_PORT": str(port)}
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, *flags], env=environ, stdout=output, stderr=output, start_new_session=True
        )


async def _ready(worker: Worker, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        if process.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError("the worker did not become ready")
        try:
            if (await worker.get("/ready"))[0] == 200:
                return
        except (OSError, IndexError):
            pass
        await asyncio.sleep(0.2)


async def _client() -> Any:
    from dynamo.runtime import DistributedRuntime

    runtime = DistributedRuntime(
        asyncio.get_running_loop(), "file", "tcp", event_plane="zmq", response_plane="tcp"
    )
    client = await runtime.endpoint("dynamo.backend.generate").client()
    await asyncio.wait_for(client.wait_for_instances(), START_S)
    return client
