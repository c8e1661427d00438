"""CPU time per chunk that the worker's relay takes, beside upstream's and beside none at all.

    python -m benchmarks.relay [--part saturated|paced|prompts] [--repeats N] [--write]

A stub engine, the real runtime, handler and client; per handler one worker process. ``saturated``:
the stub yields as fast as it can. ``prompts``: requests of one chunk each. ``paced``: all streams
get a token at the same moments, as from a decode batch, and the client compares the clock with the
moment at which each was made. The handlers take turns within every repeat. ``--write`` also writes
relay.json and relay.md to ``--results`` (benchmarks/results), keeping the parts not measured.

``bare`` is the stub's generator served as it is, which the runtime pulls; ``bare-push`` the same
pushed from the event loop, the floor of any relay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import site
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from benchmarks.machine import facts
from benchmarks.relay_proof.measure import Load, Sample, measure, one_stream
from benchmarks.relay_proof.table import Row, markdown, row_of

HANDLERS = ("ours", "upstream", "bare", "bare-push")
REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
WARM_UP_CHUNKS = 200
START_S = 120.0
PARTS = {
    "saturated": (Load(1, 4000), Load(64, 400), Load(1024, 20), Load(1024, 80)),
    "prompts": tuple(Load(128, 1, prompt_tokens=tokens) for tokens in (8, 1024, 4096, 16384)),
    "paced": (Load(1, 100, 10.0), Load(64, 20, 50.0), Load(1024, 10, 125.0)),
}


def start_worker(
    kind: str, path: str, log: Path, period_ms: float = 0.0
) -> subprocess.Popen[bytes]:
    # PYTHONPATH before the overlay's place on the path: the plain package folder shows upstream's
    # handler, and our checkout gives the stub.
    packages = [str(REPOSITORY)]
    if kind == "upstream":
        packages.append(site.getsitepackages()[0])
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "benchmarks.relay_proof.worker", kind, path, str(period_ms)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(packages)},
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def stop_worker(worker: subprocess.Popen[bytes]) -> None:
    worker.send_signal(signal.SIGKILL)
    worker.wait()


async def run_load(
    runtime: Any,
    load: Load,
    repeats: int,
    folder: Path,
    workers: dict[str, int],
    seconds: float = float("inf"),
) -> list[Row]:
    """``workers``: process ids by handler. No repeat but the first begins after ``seconds``."""
    end_s = time.monotonic() + seconds
    clients = {}
    for kind in workers:
        client = await runtime.endpoint(endpoint_path(kind, load.period_ms)).client()
        try:
            await asyncio.wait_for(client.wait_for_instances(), START_S)
        except asyncio.TimeoutError:
            raise RuntimeError((folder / f"{kind}.log").read_text()[-3000:]) from None
        await one_stream(client, WARM_UP_CHUNKS if not load.period_ms else 2)
        clients[kind] = client
    samples: dict[str, list[Sample]] = {kind: [] for kind in workers}
    for turn in range(repeats):
        if turn and time.monotonic() > end_s:
            break
        for kind, pid in workers.items():
            samples[kind].append(await measure(clients[kind], pid, load))
    return [row_of(kind, load, taken) for kind, taken in samples.items()]


def endpoint_path(kind: str, period_ms: float) -> str:
    return f"relay.{kind}-{period_ms * 1000:.0f}us.generate"


async def run(parts: Sequence[str], repeats: int, folder: Path, seconds: float) -> list[Row]:
    """``seconds`` are divided evenly among the loads that are left; starts count."""
    from dynamo.runtime import DistributedRuntime

    runtime = DistributedRuntime(
        asyncio.get_running_loop(), "file", "tcp", event_plane="zmq", response_plane="tcp"
    )
    rows: list[Row] = []
    loads = [load for part in parts for load in PARTS[part]]
    end_s, left = time.monotonic() + seconds, len(loads)
    # The pace is the worker's; loads of one pace share their workers.
    for period_ms in dict.fromkeys(load.period_ms for load in loads):
        with ExitStack() as stack:
            workers = {}
            for kind in HANDLERS:
                path = endpoint_path(kind, period_ms)
                worker = start_worker(kind, path, folder / f"{kind}.log", period_ms)
                stack.callback(stop_worker, worker)
                workers[kind] = worker.pid
            for load in loads:
                if load.period_ms == period_ms:
                    share_s = (end_s - time.monotonic()) / left
                    rows += await run_load(runtime, load, repeats, folder, workers, share_s)
                    left -= 1
    runtime.shutdown()
    return rows


def merged(record: Path, parts: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """``rows`` and, of the parts not measured now, those of the last record."""
    if not record.exists():
        return list(rows)
    measured = {load for part in parts for load in PARTS[part]}
    known = {load for loads in PARTS.values() for load in loads}
    kept = [
        row
        for row in msgspec.convert(json.loads(record.read_text())["rows"], list[Row])
        if row.load in known - measured
    ]
    return [*rows, *kept]


def main() -> int:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.relay", description=__doc__)
    flags.add_argument("--part", choices=[*PARTS, "all"], default="all")
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument(
        "--seconds", type=float, default=3600.0, help="fewer repeats when it is over"
    )
    flags.add_argument("--write", action="store_true", help="write the results")
    flags.add_argument("--results", type=Path, default=RESULTS)
    options = flags.parse_args()
    parts = list(PARTS) if options.part == "all" else [options.part]
    with tempfile.TemporaryDirectory(prefix="relay-") as scratch:
        folder = Path(scratch)
        os.environ["DYN_FILE_KV"] = str(folder / "discovery")
        os.environ.setdefault("DYN_LOG", "error")
        for name in ("DYN_TCP_RPC_HOST", "DYN_TCP_RESPONSE_STREAM_HOST", "DYN_EVENT_PLANE_HOST"):
            os.environ.setdefault(name, "127.0.0.1")
        measured = facts()
        rows = uvloop.run(run(parts, options.repeats, folder, options.seconds))
    if options.write:
        rows = merged(options.results / "relay.json", parts, rows)
        record = {"machine": measured, "rows": msgspec.to_builtins(rows)}
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "relay.json").write_text(json.dumps(record, indent=1) + "\n")
        (options.results / "relay.md").write_text(markdown(measured, rows))
    print(markdown(measured, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
