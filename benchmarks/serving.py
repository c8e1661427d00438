"""Serving through HTTP on the CPU: this worker, upstream's, and SGLang's own server.

    python -m benchmarks.serving [--cycles 2] [--rounds 3] [--write]

The demo target with the same engine flags everywhere; ours and upstream's worker behind Dynamo's
frontend. One system at a time: engine, server and client share the machine's cores. A cycle starts
each system once and plays each load once to warm up and then ``--rounds`` times; every second cycle
goes backwards, so that a machine that changes meanwhile favours nobody. ``--write`` also writes
serving.json and serving.md to ``--results`` (benchmarks/results).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.drain_proof.fleet import upstream_kind
from benchmarks.machine import facts
from benchmarks.relay_proof.measure import cpu_seconds
from benchmarks.serving_proof.client import Load, Round, play
from benchmarks.serving_proof.table import Row, markdown
from tests.support.checkpoints import checkpoint
from tests.support.client import HttpClient
from tests.support.ports import free_port
from tests.support.processes import ManagedProcess
from tests.support.stack import NOT_UP_YET, Stack

RESULTS = Path(__file__).parent / "results"
MODEL = "demo"
READY_S = 240.0
# What the CPU platform gives our worker by itself; SGLang's server has to be told.
FLAGS = (
    *("--device", "cpu", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--disable-cuda-graph", "--mem-fraction-static", "0.3", "--max-total-tokens", "32768"),
    *("--max-mamba-cache-size", "128", "--max-running-requests", "32", "--sleep-on-idle"),
)
LOADS = (
    Load("1 stream", 1, 8, 64),
    Load("8 streams", 8, 8, 64),
    Load("32 streams", 32, 8, 48),
    Load("4 long prompts", 4, 400, 8),
)
# The address to ask, and the process that holds SGLang's tokenizer manager.
Start = Callable[[Stack, Sequence[str]], tuple[str, int]]


def start_dynamo(environ: Mapping[str, str]) -> Start:
    def start(stack: Stack, arguments: Sequence[str]) -> tuple[str, int]:
        frontend = stack.start_frontend()
        worker = stack.start_worker(*arguments, environ=environ)
        frontend.wait_for_model(MODEL, deadline_s=READY_S)
        return f"http://127.0.0.1:{frontend.http_port}", worker.pid

    return start


def start_sglang(stack: Stack, arguments: Sequence[str]) -> tuple[str, int]:
    from sglang_worker.reference_platform.defaults import process_environment

    port = free_port()
    command = [sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1"]
    server = stack._start(
        ManagedProcess, [*command, "--port", str(port), *arguments], "sglang", process_environment()
    )
    client = HttpClient(f"http://127.0.0.1:{port}")
    server.wait_for(
        lambda: client.get("/health_generate").status == 200,
        "SGLang's server answers",
        deadline_s=READY_S,
        interval_s=0.5,
        ignore=NOT_UP_YET,
    )
    return f"http://127.0.0.1:{port}", server.pid


def systems() -> dict[str, Start]:
    return {
        "ours": start_dynamo({}),
        "upstream": start_dynamo(upstream_kind(checkpoint("gdn")).environ),
        "sglang": start_sglang,
    }


def measure(name: str, start: Start, rounds: int, cycle: int) -> list[Row]:
    arguments = ("--model-path", str(checkpoint("gdn")), "--served-model-name", MODEL, *FLAGS)
    rows = []
    with Stack() as stack:
        url, pid = start(stack, arguments)
        for load in LOADS:
            played: list[Round] = []
            first = cycle * (1 + rounds)
            for turn in range(first, first + 1 + rounds):
                before_s = cpu_seconds(pid)
                one = asyncio.run(play(url, MODEL, load, turn))
                cpu_s = cpu_seconds(pid) - before_s
                per_token_us = cpu_s / (load.streams * load.new_tokens) * 1e6
                played.append(msgspec.structs.replace(one, cpu_us_per_token=per_token_us))
            rows.append(Row(name, load, tuple(played[1:])))
            print(json.dumps(msgspec.to_builtins(rows[-1])), file=sys.stderr, flush=True)
    return rows


def joined(rows: Sequence[Row], more: Sequence[Row]) -> list[Row]:
    """The rounds of a system's load belong together, whichever cycle they are of."""
    table = {(row.system, row.load): row for row in rows}
    for row in more:
        known = table.get((row.system, row.load))
        rounds = (*known.rounds, *row.rounds) if known is not None else row.rounds
        table[row.system, row.load] = Row(row.system, row.load, rounds)
    return list(table.values())


def main() -> int:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    flags.add_argument("--cycles", type=int, default=2)
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--only", choices=("ours", "upstream", "sglang"))
    flags.add_argument("--write", action="store_true", help="write the results")
    flags.add_argument("--results", type=Path, default=RESULTS)
    options = flags.parse_args()
    machine = facts()
    chosen = [one for one in systems().items() if options.only in (None, one[0])]
    rows: list[Row] = []
    for cycle in range(options.cycles):
        for name, start in chosen if cycle % 2 == 0 else reversed(chosen):
            rows = joined(rows, measure(name, start, options.rounds, cycle))
    page = markdown(machine, rows, " ".join(FLAGS))
    if options.write and options.only is None:
        record = {"machine": machine, "flags": FLAGS, "rows": msgspec.to_builtins(rows)}
        options.results.mkdir(parents=True, exist_ok=True)
        (options.results / "serving.json").write_text(json.dumps(record, indent=1) + "\n")
        (options.results / "serving.md").write_text(page)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
