"""Start time and token rates of the embedded default, through the real frontend.

    python -m benchmarks.demo_rates

Runs the demo target alone, with its MTP draft and with the dense draft, and writes
benchmarks/results/demo_rates.json and demo_rates.md. Rates count generated tokens of whole answers
over wall time, HTTP and routing included; each figure is the best of three rounds after a warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.support.checkpoints import checkpoint
from tests.support.client import OpenAIClient, StreamResult
from tests.support.stack import Stack, Worker

RESULTS = Path(__file__).parent / "results"
MODEL = "demo"
TOKENS = 160
ROUNDS = 3
STREAMS = 6
PROMPTS = ("What is a compiler?", "Tell me about the sea.", "How do I boil an egg?")

# The speculative settings that DESIGN section 8 names for the demo target.
DRAFT_STEPS = ("--speculative-num-steps", "2", "--speculative-eagle-topk", "1")
DRAFT = (*DRAFT_STEPS, "--speculative-num-draft-tokens", "3")


class Variant(msgspec.Struct, frozen=True):
    name: str
    flags: tuple[str, ...] = ()
    draft: str | None = None

    def arguments(self) -> list[str]:
        draft = (
            ["--speculative-draft-model-path", str(checkpoint(self.draft))] if self.draft else []
        )
        target = ["--model-path", str(checkpoint("gdn")), "--served-model-name", MODEL]
        return [*target, *self.flags, *draft]


VARIANTS = (
    Variant("target alone"),
    Variant("MTP draft (NEXTN)", ("--speculative-algorithm", "NEXTN", *DRAFT)),
    Variant("dense draft (STANDALONE)", ("--speculative-algorithm", "STANDALONE", *DRAFT), "dense"),
)


class Measurement(msgspec.Struct, frozen=True):
    """``ready_s``: from starting the process to its answer on /ready and a listed model."""

    variant: str
    engine_ready_s: float
    ready_s: float
    first_token_ms: float
    one_stream_tokens_per_s: float
    six_streams_tokens_per_s: float
    acceptance_length: float | None


def answer(client: OpenAIClient, prompt: str) -> StreamResult:
    result = client.stream_chat(
        MODEL,
        prompt,
        max_tokens=TOKENS,
        temperature=0,
        stream_options={"include_usage": True},
        ignore_eos=True,
    )
    if result.status != 200 or not result.complete or result.usage is None:
        raise RuntimeError(f"the answer is not whole: {result.status} {result.errors}")
    return result


def tokens_per_s(client: OpenAIClient, streams: int) -> float:
    """Best of the rounds: background work of a small machine only ever makes one slower."""
    best = 0.0
    for turn in range(ROUNDS):
        # A prompt of its own for each stream and round: a cached prefix would flatter the rate.
        prompts = [f"({turn}.{n}) {PROMPTS[n % len(PROMPTS)]}" for n in range(streams)]
        started_s = time.monotonic()
        with ThreadPoolExecutor(streams) as threads:
            results = list(threads.map(lambda prompt: answer(client, prompt), prompts))
        spent_s = time.monotonic() - started_s
        counted = sum(int(result.usage["completion_tokens"]) for result in results if result.usage)
        best = max(best, counted / spent_s)
    return best


def first_token_ms(client: OpenAIClient) -> float:
    best_s = float("inf")
    for turn in range(ROUNDS):
        started_s = time.monotonic()
        client.stream_chat(MODEL, f"[{turn}] Hello.", disconnect_after=1, max_tokens=8)
        best_s = min(best_s, time.monotonic() - started_s)
    return best_s * 1000


def acceptance_length(worker: Worker) -> float | None:
    """The scheduler's average over everything it generated; None without a draft."""
    assert worker.system is not None
    states = worker.system.get("/engine/server_info").json().get("internal_states") or [{}]
    value = states[0].get("avg_spec_accept_length")
    return None if value is None else round(float(value), 2)


def measure(variant: Variant) -> Measurement:
    with Stack() as stack:
        frontend = stack.start_frontend()
        started_s = time.monotonic()
        worker = stack.start_worker(*variant.arguments())
        stack.wait_ready(worker, "/ready")
        frontend.wait_for_model(MODEL)
        ready_s = time.monotonic() - started_s
        match = worker.wait_log(r"engine ready in ([\d.]+) s")
        answer(frontend.client, "Warm up.")
        return Measurement(
            variant=variant.name,
            engine_ready_s=float(match[1]),
            ready_s=round(ready_s, 1),
            first_token_ms=round(first_token_ms(frontend.client), 1),
            one_stream_tokens_per_s=round(tokens_per_s(frontend.client, 1), 1),
            six_streams_tokens_per_s=round(tokens_per_s(frontend.client, STREAMS), 1),
            acceptance_length=acceptance_length(worker),
        )


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "load_average_1_min": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def markdown(facts: dict[str, Any], rows: Sequence[Measurement]) -> str:
    lines = [
        "# Rates of the demo models on the CPU reference platform",
        "",
        f"{facts['cores']} cores, Python {facts['python']}, {facts['measured']}; load average "
        f"before the run {facts['load_average_1_min']}. Made by `python -m benchmarks.demo_rates`: "
        f"{TOKENS} tokens an answer through the frontend, best of {ROUNDS}.",
        "",
        "| variant | engine ready | ready | first token | 1 stream | 6 streams | acceptance |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        accepted = "" if row.acceptance_length is None else f"{row.acceptance_length}"
        lines.append(
            f"| {row.variant} | {row.engine_ready_s} s | {row.ready_s} s | {row.first_token_ms} ms "
            f"| {row.one_stream_tokens_per_s} tok/s | {row.six_streams_tokens_per_s} tok/s "
            f"| {accepted} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(prog="python -m benchmarks.demo_rates", description=__doc__)
    flags.add_argument("--only", help="a variant's name, or a part of it; nothing is written")
    options = flags.parse_args(argv)
    facts = machine()
    chosen = [one for one in VARIANTS if options.only is None or options.only in one.name]
    rows = []
    for variant in chosen:
        rows.append(measure(variant))
        print(json.dumps(msgspec.to_builtins(rows[-1])), flush=True)
    if options.only is None:
        record = {"machine": facts, "variants": msgspec.to_builtins(rows)}
        (RESULTS / "demo_rates.json").write_text(json.dumps(record, indent=1) + "\n")
        (RESULTS / "demo_rates.md").write_text(markdown(facts, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
