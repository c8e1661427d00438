"""The worker itself on a GPU: frontend, start phases, streams, drain, resume, SIGTERM.

    python -m benchmarks.gpu_worker --results FILE.json [--dry-run]

Wants SGLang and ai-dynamo importable and ``components/sglang_worker/overlay`` and ``components``
first on PYTHONPATH, or the package installed. Random weights, the demo's tokenizer. ``--dry-run``
is the same on the CPU platform with a tiny model. One row per draft kind; a row that fails says
why and does not keep the others from running. The exit code is 1 when a row failed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.gpu_rows import served
from benchmarks.gpu_rows.tokenizer import add_tokenizer
from benchmarks.gpu_truth.model import write_models
from tests.support.stack import Frontend, Stack, Worker

NAME = "gpu"
STREAMS = 16
STREAM_TOKENS = 300
START_DEADLINE_S = 300.0
DRAFTS: dict[str, tuple[str, ...]] = {
    "plain": (),
    "nextn": (
        *("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "2"),
        *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"),
    ),
}
DEVICE_FLAGS = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--grammar-backend", "none", "--mem-fraction-static", "0.6", "--dtype", "bfloat16"),
    *("--max-total-tokens", "100000", "--max-running-requests", "32"),
    *("--max-mamba-cache-size", "96", "--context-length", "8192"),
    *("--cuda-graph-max-bs-decode", "16", "--disable-prefill-cuda-graph"),
)
DRY_FLAGS = ("--dtype", "float32")


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--results", type=Path, required=True)
    flags.add_argument("--rows", default=",".join(DRAFTS))
    flags.add_argument("--dry-run", action="store_true")
    options = flags.parse_args()
    rows: dict[str, Any] = {}
    for name in options.rows.split(","):
        rows[name] = run_row(name, dry_run=options.dry_run)
        options.results.write_text(json.dumps(rows, indent=1))
        print(json.dumps({name: rows[name]}, indent=1)[:6000], flush=True)
    return 0 if all(row["failed"] is None for row in rows.values()) else 1


def run_row(name: str, *, dry_run: bool) -> dict[str, Any]:
    flags = (*DRAFTS[name], *(DRY_FLAGS if dry_run else DEVICE_FLAGS))
    with tempfile.TemporaryDirectory(prefix="gpu-worker-") as scratch:
        model = prepare_model(Path(scratch), dry_run=dry_run)
        return served.run_row(
            Path(scratch) / "stack", {}, {}, lambda stack, row: serve(stack, model, flags, row)
        )


def prepare_model(scratch: Path, *, dry_run: bool) -> Path:
    """A config without weights, and the demo's tokenizer, whose ids all fit its vocabulary."""
    target, _ = write_models(scratch, dry_run=dry_run)
    return add_tokenizer(target, scratch)


def serve(stack: Stack, model: Path, flags: tuple[str, ...], row: dict[str, Any]) -> None:
    frontend = stack.start_frontend(migration_limit=3)
    worker = stack.start_worker(
        *("--model-path", str(model), "--served-model-name", NAME, "--load-format", "dummy"),
        *flags,
        environ={"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "1"},
    )
    row["phases_s"] = watch_start(worker)
    frontend.wait_for_model(NAME)
    row["runners"] = worker.system.get("/engine/server_info").json()["linear_attn_runners"]
    row["first_chat"] = chat(frontend)
    row["drain"] = drain_under_load(frontend, worker)
    reply = worker.system.post("/engine/resume")
    row["resume"] = {"status": reply.status, "body": reply.json()}
    row["chat_after_resume"] = chat(frontend)
    row["metrics_lines"] = len(worker.system.get("/metrics").text.splitlines())
    began_s = time.monotonic()
    worker.send(signal.SIGTERM)
    row["sigterm"] = {"exit_code": worker.wait_exit(60.0)}
    row["sigterm"]["seconds"] = round(time.monotonic() - began_s, 2)
    worker.check_nothing_left()
    check(row)


def watch_start(worker: Worker) -> dict[str, float]:
    """Seconds at which each startup phase was first seen; ``/live`` must answer all along."""
    began_s = time.monotonic()
    seen: dict[str, float] = {}
    while time.monotonic() - began_s < START_DEADLINE_S:
        worker.require_running()
        try:
            reply = worker.system.get("/startup")
            live = worker.system.get("/live").status
        except OSError:
            time.sleep(0.1)
            continue
        at_s = round(time.monotonic() - began_s, 2)
        seen.setdefault("listening", at_s)
        seen.setdefault(str(reply.json()["phase"]), at_s)
        if reply.status == 200:
            return seen
        if live != 200:
            raise AssertionError(f"/live answered {live} while the engine was loading")
        time.sleep(0.1)
    raise TimeoutError(f"not started within {START_DEADLINE_S:g} s; phases: {seen}")


def chat(frontend: Frontend) -> dict[str, Any]:
    began_s = time.monotonic()
    reply = frontend.client.chat(NAME, "Hello", max_tokens=16, temperature=0, ignore_eos=True)
    body = reply.json()
    return {
        "status": reply.status,
        "seconds": round(time.monotonic() - began_s, 3),
        "usage": body.get("usage"),
    }


def drain_under_load(frontend: Frontend, worker: Worker) -> dict[str, Any]:
    """Streams that are running when the drain is asked for must all end with every token."""
    prompts = [f"Question {number}" for number in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        running = served.start_streams(pool, frontend, NAME, prompts, STREAM_TOKENS)
        worker.wait_for(
            lambda: worker.system.get("/engine").json()["details"].get("in_flight") == STREAMS,
            "every stream is admitted",
            deadline_s=60.0,
        )
        began_s = time.monotonic()
        asked = worker.system.post("/engine/drain")
        worker.wait_for(
            lambda: worker.system.get("/engine/status").json()["state"] == "drained",
            "drained",
            deadline_s=120.0,
        )
        drained_s = time.monotonic() - began_s
        results = [one.result() for one in running]
    return {
        "status": asked.status,
        "body": asked.json(),
        "drained_after_s": round(drained_s, 2),
        **served.stream_counts(results),
    }


def check(row: dict[str, Any]) -> None:
    served.require(
        {
            "first chat": (row["first_chat"]["status"], 200),
            "drain": (row["drain"]["status"], 202),
            "complete streams": (row["drain"]["complete"], STREAMS),
            "tokens": (row["drain"]["tokens"], [STREAM_TOKENS]),
            "resume": (row["resume"]["status"], 200),
            "chat after resume": (row["chat_after_resume"]["status"], 200),
            "exit code": (row["sigterm"]["exit_code"], 0),
        }
    )


if __name__ == "__main__":
    sys.exit(main())
