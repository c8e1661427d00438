"""The worker on two GPUs: per-rank runner reports, and answers against those of one GPU.

    python -m benchmarks.gpu_tensor_parallel --results FILE.json [--table FILE.md] [--dry-run]

Wants what ``benchmarks.gpu_worker`` wants, on a machine with two GPUs. A row that fails says why
and does not keep the others from running; rows of a group start at the same time, and the next
group as soon as they have registered. Results are written whenever a row ends. ``--total-s``
bounds all of it. ``--dry-run`` is the same on the CPU platform with a tiny model. The exit code is
1 when a row failed.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gpu_rows import served
from benchmarks.tensor_parallel import table
from benchmarks.tensor_parallel.agreement import Answer, answer_of, summary
from benchmarks.tensor_parallel.model import write_model
from benchmarks.tensor_parallel.stages import Stage, Stages
from tests.support.stack import Frontend, Stack, Worker

NAME = "gpu"
REFERENCE = "tp1"
ANSWER_TOKENS = 24
PROMPT_WORDS = (1, 8, 40, 120, 300, 600)
NEXTN = (
    *("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "2"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"),
)
DEVICE_FLAGS = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--grammar-backend", "none", "--mem-fraction-static", "0.8", "--dtype", "bfloat16"),
    *("--max-total-tokens", "50000", "--max-running-requests", "16"),
    *("--max-mamba-cache-size", "64", "--context-length", "8192"),
    *("--cuda-graph-max-bs-decode", "8", "--disable-prefill-cuda-graph"),
    # Neither may multicast over NVLink: the GPUs of the host are shared.
    *("--disable-custom-all-reduce", "--enforce-disable-flashinfer-allreduce-fusion"),
)
DRY_FLAGS = ("--dtype", "float32")
ENVIRONMENT = {
    # Rows that run side by side take memory from each other's GPUs while they start.
    "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0",
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5",
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


class Row(msgspec.Struct, frozen=True):
    """``ranks``: those that must report; ``dp_ranks``: how many can be asked one by one."""

    flags: tuple[str, ...]
    ranks: tuple[int, ...]
    dp_ranks: int = 1


ROWS = {
    REFERENCE: Row((), (0,)),
    "tp2": Row(("--tp-size", "2"), (0, 1)),
    "tp2-nextn": Row(("--tp-size", "2", *NEXTN), (0, 1)),
    "dp2": Row(("--dp-size", "2"), (0, 1), 2),
    "dp2-attention": Row(("--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"), (0, 1), 2),
}
GROUPS = "tp1+tp2,tp2-nextn,dp2+dp2-attention"


def main() -> int:
    flags = served.parser(__doc__, GROUPS, row_limit_s=140.0)
    flags.add_argument("--total-s", type=float, default=320.0, help="seconds for everything")
    options = flags.parse_args()
    end_s = time.monotonic() + options.total_s
    with tempfile.TemporaryDirectory(prefix="tensor-parallel-") as scratch:
        model = write_model(Path(scratch), dry_run=options.dry_run)
        stages = Stages(
            lambda name, stage: run_row(name, model, Path(scratch) / name, stage, options.dry_run),
            lambda rows: note(rows, options),
        )
        judged = stages.run(options.groups, end_s - time.monotonic(), options.row_limit_s)
    print(table.render(judged), flush=True)
    return served.ended(judged)


def note(rows: served.Rows, options: argparse.Namespace) -> served.Rows:
    judged = judge(rows)
    served.write(options, judged, table.render)
    ended = {name: row["failed"] or "ok" for name, row in judged.items()}
    lines = {name: text.splitlines()[0][:120] for name, text in ended.items()}
    print(f"ended so far: {lines}", flush=True)
    return judged


def run_row(name: str, model: Path, scratch: Path, stage: Stage, dry_run: bool) -> dict[str, Any]:
    # The last of two flags counts: a row's own.
    flags = (*(DRY_FLAGS if dry_run else DEVICE_FLAGS), *ROWS[name].flags)
    return served.run_row(
        scratch,
        ENVIRONMENT,
        {"flags": " ".join(ROWS[name].flags)},
        lambda stack, row: serve(stack, model, flags, ROWS[name], row, stage),
    )


def serve(
    stack: Stack,
    model: Path,
    flags: Sequence[str],
    wanted: Row,
    row: dict[str, Any],
    stage: Stage,
) -> None:
    began_s = time.monotonic()
    arguments = ("--no-router-kv-events",)
    frontend = stack.start_frontend(router_mode="kv", arguments=arguments, ready=False)
    worker = stack.start_worker("--model-path", str(model), "--served-model-name", NAME, *flags)
    try:
        frontend.wait_for_model(NAME, deadline_s=stage.limit_s)
    finally:
        # One that did not register is taken down beside the next group's start.
        stage.over()
    assert worker.system is not None
    row["registered_after_s"] = round(time.monotonic() - began_s, 1)
    row["runners"] = worker.system.get("/engine/server_info").json()["linear_attn_runners"]
    check_reports(row["runners"], wanted)
    instance = str(worker.system.get("/engine/status").json()["worker_id"])
    row["answers"] = {
        rank: [msgspec.to_builtins(ask(frontend, words, instance, rank)) for words in PROMPT_WORDS]
        for rank in range(wanted.dp_ranks)
    }
    row["answered_after_s"] = round(time.monotonic() - began_s, 1)
    stop(worker, row)


def check_reports(runners: list[dict[str, Any]], wanted: Row) -> None:
    """Every rank reported, and the ranks of one runner agree (or SGLang would not have started)."""
    for runner in runners:
        if tuple(runner["ranks"]) != wanted.ranks or not runner["report_valid"]:
            raise AssertionError(
                f"{runner['runner']}: ranks {runner['ranks']}, valid {runner['report_valid']}; "
                f"expected ranks {list(wanted.ranks)}"
            )


def ask(frontend: Frontend, words: int, instance: str, dp_rank: int) -> Answer:
    reply = frontend.client.post(
        "/v1/chat/completions",
        {
            "model": NAME,
            "messages": [{"role": "user", "content": "the old house " * words}],
            "max_tokens": ANSWER_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": True,
            "top_logprobs": 2,
            "nvext": {"extra_fields": ["worker_id"]},
        },
        # The router heeds a rank only together with the instance that has it.
        x_worker_instance_id=instance,
        x_data_parallel_rank=str(dp_rank),
    )
    body = reply.json()
    if reply.status != 200:
        raise AssertionError(f"{words} words, rank {dp_rank}: {reply.status} {reply.text[:300]}")
    served = body["nvext"]["worker_id"]["decode_dp_rank"]
    if served != dp_rank:
        raise AssertionError(f"asked for data-parallel rank {dp_rank}, rank {served} answered")
    return answer_of(body)


def stop(worker: Worker, row: dict[str, Any]) -> None:
    began_s = time.monotonic()
    worker.send(signal.SIGTERM)
    code = worker.wait_exit(60.0)
    row["sigterm"] = {"exit_code": code, "seconds": round(time.monotonic() - began_s, 1)}
    worker.check_nothing_left()
    if code != 0:
        raise AssertionError(f"SIGTERM: exit code {code}")


def judge(rows: dict[str, Any]) -> dict[str, Any]:
    """Every data-parallel rank's answers beside the reference's."""
    judged = {name: dict(rows[name]) for name in ROWS if name in rows}
    reference = answers(rows.get(REFERENCE, {}), 0)
    for name, row in judged.items():
        if name == REFERENCE or reference is None:
            continue
        row["agreement"] = {
            str(rank): summary(reference, found)
            for rank in range(ROWS[name].dp_ranks)
            if (found := answers(row, rank)) is not None
        }
        disagree = [rank for rank, one in row["agreement"].items() if not one["agrees"]]
        if disagree and row["failed"] is None:
            row["failed"] = f"answers of data-parallel rank {', '.join(disagree)} differ"
    return judged


def answers(row: dict[str, Any], rank: int) -> list[Answer] | None:
    found = row.get("answers", {}).get(rank)
    return None if found is None else msgspec.convert(found, list[Answer])


if __name__ == "__main__":
    sys.exit(main())
