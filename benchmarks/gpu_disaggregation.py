"""Prefill on one GPU, decode on another, NIXL between them: answers against one aggregated worker.

    python -m benchmarks.gpu_disaggregation --results FILE.json [--table FILE.md] [--dry-run]

Wants what ``benchmarks.gpu_worker`` wants and NIXL, on a machine with two GPUs. Both workers see
both GPUs (``--base-gpu-id`` chooses), so that NIXL may copy from one to the other. A row that
fails says why and does not keep the others from running; rows of a group run at the same time.
``--dry-run`` is the same on the CPU platform with a tiny model. The exit code is 1 when a row
failed.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.disaggregation import table
from benchmarks.gpu_rows import served
from benchmarks.tensor_parallel.agreement import Answer, answer_of, summary
from benchmarks.tensor_parallel.model import write_model
from tests.support.stack import Frontend, Stack, Worker

NAME = "gpu"
REFERENCE = "aggregated"
ANSWER_TOKENS = 24
# The demo's tokenizer makes about eight tokens of three words.
PROMPT_WORDS = (1, 5, 40, 300, 900)
STREAMS = 8
STREAM_WORDS, DRY_STREAM_WORDS = 900, 200
STREAM_TOKENS = 120
DEVICE_FLAGS = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--grammar-backend", "none", "--mem-fraction-static", "0.8", "--dtype", "bfloat16"),
    *("--max-total-tokens", "120000", "--max-running-requests", "16"),
    *("--max-mamba-cache-size", "64", "--context-length", "8192"),
    *("--cuda-graph-max-bs-decode", "8", "--disable-prefill-cuda-graph"),
    *("--disaggregation-transfer-backend", "nixl"),
)
DRY_FLAGS = ("--dtype", "float32")
ENVIRONMENT = {
    # Rows that run side by side take memory from each other's GPUs while they start.
    "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0",
    "SGLANG_HOST_IP": "127.0.0.1",
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
}
# UCX then says by which of its transports it moves what, one file per process.
UCX_LOGS = {"UCX_PROTO_INFO": "y", "UCX_LOG_LEVEL": "info"}
# "[1796030521.647482] [host:12761:2]   |   0..626 | short | tcp/lo |"
UCX_LINE = re.compile(r"\[\d+\.\d+\] \[[^\]]+\] .*\|")
TRANSPORTS = re.compile(r"\b(?:cuda_ipc|cuda_copy|gdr_copy|cma|sysv|posix|tcp|rc_mlx5)\b")


class Row(msgspec.Struct, frozen=True):
    """``workers``: name -> flags; ``environ``: for each of them."""

    workers: Mapping[str, tuple[str, ...]]
    environ: Mapping[str, str] = {}


SPLIT = {
    "prefill": ("--disaggregation-mode", "prefill", "--base-gpu-id", "0"),
    "decode": ("--disaggregation-mode", "decode", "--base-gpu-id", "1"),
}
ROWS = {
    REFERENCE: Row({"aggregated": ()}),
    "nixl": Row(SPLIT),
    # What is left where the GPUs cannot reach each other: by way of host memory.
    "nixl-tcp": Row(SPLIT, {"UCX_TLS": "tcp,sm,self,cuda_copy"}),
}
GROUPS = "aggregated+nixl,nixl-tcp"


def main() -> int:
    options = served.parser(__doc__, GROUPS, row_limit_s=240.0).parse_args()
    with tempfile.TemporaryDirectory(prefix="disaggregation-") as scratch:
        model = write_model(Path(scratch), dry_run=options.dry_run)
        return served.run_table(
            options, lambda name: run_row(name, model, Path(scratch) / name, options), judge, table
        )


def run_row(name: str, model: Path, scratch: Path, options: argparse.Namespace) -> dict[str, Any]:
    scratch.mkdir()
    logs = {**UCX_LOGS, "UCX_LOG_FILE": str(scratch / "ucx-%p.log")}
    return served.run_row(
        scratch,
        {**ENVIRONMENT, **logs, **ROWS[name].environ},
        {},
        lambda stack, row: serve(stack, model, ROWS[name], row, options),
    )


def serve(
    stack: Stack, model: Path, wanted: Row, row: dict[str, Any], options: argparse.Namespace
) -> None:
    began_s = time.monotonic()
    frontend = stack.start_frontend(migration_limit=3)
    common = ("--model-path", str(model), "--served-model-name", NAME)
    device = DRY_FLAGS if options.dry_run else DEVICE_FLAGS
    workers = {
        name: stack.start_worker(*common, *device, *placed(flags, options.dry_run), name=name)
        for name, flags in wanted.workers.items()
    }
    for worker in workers.values():
        stack.wait_ready(worker, "/startup", deadline_s=options.row_limit_s)
    row["registered_after_s"] = round(time.monotonic() - began_s, 1)
    frontend.wait_for_model(NAME)
    wait_until_served(frontend)
    answers = [ask(frontend, words) for words in PROMPT_WORDS]
    row["answers"] = [msgspec.to_builtins(one) for one in answers]
    row["first_token_ms"] = {
        one.prompt_tokens: first_token_ms(frontend, words)
        for words, one in zip(PROMPT_WORDS, answers, strict=True)
    }
    if "prefill" in workers:
        words = DRY_STREAM_WORDS if options.dry_run else STREAM_WORDS
        row["streams"] = stop_prefill_under_load(frontend, workers["prefill"], words)
        row["transports"] = transports(stack.folder)
        check(row["streams"])


def placed(flags: tuple[str, ...], dry_run: bool) -> tuple[str, ...]:
    """Without the GPU's number where there is none."""
    return flags[: flags.index("--base-gpu-id")] if dry_run and "--base-gpu-id" in flags else flags


def wait_until_served(frontend: Frontend) -> None:
    """The frontend lists a model a little before its prefill router is ready."""
    frontend.wait_for(
        lambda: frontend.client.chat(NAME, "hello", max_tokens=4).status == 200,
        "the first answer",
        deadline_s=120.0,
    )


def ask(frontend: Frontend, words: int) -> Answer:
    reply = frontend.client.chat(
        *(NAME, "the old house " * words),
        max_tokens=ANSWER_TOKENS,
        temperature=0,
        ignore_eos=True,
        logprobs=True,
        top_logprobs=2,
    )
    if reply.status != 200:
        raise AssertionError(f"{words} words: {reply.status} {reply.text[:300]}")
    return answer_of(reply.json())


def first_token_ms(frontend: Frontend, words: int, repeats: int = 3) -> float:
    """The least of several, each with a prompt of its own so that no cache helps."""
    found = []
    for number in range(repeats):
        body = {
            "model": NAME,
            "messages": [{"role": "user", "content": f"{number} " + "a new river " * words}],
            "max_tokens": 2,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
        }
        began_s = time.monotonic()
        with frontend.client.open("POST", "/v1/chat/completions", body) as stream:
            for event in stream:
                if isinstance(event.data, dict) and event.data.get("choices"):
                    found.append((time.monotonic() - began_s) * 1000)
                    break
    return round(min(found), 1)


def stop_prefill_under_load(frontend: Frontend, worker: Worker, words: int) -> dict[str, Any]:
    """SIGTERM to the only worker that computes prompts as soon as it has received all of them."""
    before = counted(worker, "requests_total")
    prompts = [f"{number} " + "the last train " * words for number in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        running = served.start_streams(pool, frontend, NAME, prompts, STREAM_TOKENS)
        worker.wait_for(
            lambda: counted(worker, "requests_total") == before + STREAMS,
            "every prompt has reached the worker",
            deadline_s=60.0,
            interval_s=0.01,
        )
        at_signal, began_s = counted(worker, "inflight_requests"), time.monotonic()
        worker.send(signal.SIGTERM)
        code = worker.wait_exit(90.0)
        seconds = time.monotonic() - began_s
        results = [one.result() for one in running]
    return {
        "in_flight_at_sigterm": at_signal,
        "exit_code": code,
        "seconds": round(seconds, 2),
        **served.stream_counts(results),
        "errors": sorted({str(error)[:200] for one in results for error in one.errors}),
    }


def counted(worker: Worker, name: str) -> int:
    """The runtime's own count for the endpoint that takes requests."""
    assert worker.system is not None
    line = re.compile(rf'^dynamo_component_{name}\{{[^}}]*"generate"[^}}]*\}} (\d+)', re.MULTILINE)
    return sum(map(int, line.findall(worker.system.get("/metrics").text)))


def transports(folder: Path) -> list[str]:
    """What UCX moved and by which transports, in its own words: how much, how, over what."""
    found: set[str] = set()
    for log in folder.glob("ucx-*.log"):
        what = ""
        for line in log.read_text(errors="replace").splitlines():
            if not UCX_LINE.match(line):
                continue
            if "remote memory write" in line:
                what = line.split("|")[1].strip()
            elif what and TRANSPORTS.search(line):
                found.add(f"{what}: {' '.join(line.split('|', 1)[1].replace('|', ' ').split())}")
            elif "active message" in line or "cfg#" in line:
                what = ""
    return sorted(found)


def check(streams: dict[str, Any]) -> None:
    served.require(
        {
            "exit code": (streams["exit_code"], 0),
            "complete streams": (streams["complete"], STREAMS),
            "tokens": (streams["tokens"], [STREAM_TOKENS]),
        }
    )


def judge(rows: dict[str, Any]) -> dict[str, Any]:
    """Every row's answers beside the aggregated worker's."""
    judged = {name: dict(row) for name, row in rows.items()}
    reference = rows.get(REFERENCE, {}).get("answers")
    for name, row in judged.items():
        if name == REFERENCE or reference is None or "answers" not in row:
            continue
        pair = [msgspec.convert(one, list[Answer]) for one in (reference, row["answers"])]
        row["agreement"] = summary(*pair)
        if not row["agreement"]["agrees"] and row["failed"] is None:
            row["failed"] = "answers differ from the aggregated worker's"
    return judged


if __name__ == "__main__":
    sys.exit(main())
