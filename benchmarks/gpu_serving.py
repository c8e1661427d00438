"""A hybrid GDN model on a GPU: bare `sgl.Engine` against the worker behind the frontend.

    python -m benchmarks.gpu_serving --results FILE.json [--dry-run]
    python -m benchmarks.gpu_serving --render FILE.json        # writes benchmarks/results/

Same model, same arguments, same prompts, both alive at once and asked in turn; random weights, no
prefix cache. "stream" asks for every token as it comes, "whole" for whole answers. Rates are
generated tokens (decode) or prompt tokens (prefill) per second of wall time of a whole batch.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gpu_rates.bare import BareEngine
from benchmarks.gpu_rates.http_load import Load, first_median_ms
from benchmarks.gpu_rates.shapes import prompts
from benchmarks.gpu_worker import DEVICE_FLAGS, DRY_FLAGS, NAME, START_DEADLINE_S, prepare_model
from tests.support.stack import Stack

RESULTS = Path(__file__).parent / "results"


class Shape(msgspec.Struct, frozen=True):
    name: str
    batch: int
    prompt_tokens: int
    new_tokens: int

    @property
    def counts_prompts(self) -> bool:
        return self.name == "prefill"


DEVICE_SHAPES = (
    *(Shape("decode", batch, 128, 256) for batch in (1, 32, 128)),
    *(Shape("prefill", batch, 4096, 8) for batch in (1, 32, 128)),
)
DRY_SHAPES = (Shape("decode", 1, 8, 8), Shape("decode", 4, 8, 8), Shape("prefill", 2, 60, 2))
SIZE_FLAGS = (
    *("--max-total-tokens", "600000", "--max-running-requests", "128"),
    *("--max-mamba-cache-size", "192", "--cuda-graph-max-bs-decode", "128"),
    *("--cuda-graph-bs-decode", "1", "32", "128", "--disable-radix-cache"),
)


def main(argv: Sequence[str] | None = None) -> int:
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--results", type=Path, default=Path("gpu_serving.part.json"))
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument("--total", type=float, default=330.0, help="seconds; later shapes are left")
    flags.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU platform")
    flags.add_argument("--render", type=Path)
    options = flags.parse_args(argv)
    if options.render:
        return _render(options.render)
    deadline_s = time.monotonic() + options.total
    found: dict[str, Any] = {"head": _head(options), "rows": []}
    kept = {key: value for key, value in os.environ.items() if key.startswith("SGLANG_")}
    with (
        tempfile.TemporaryDirectory(prefix="gpu-serving-") as scratch,
        Stack(Path(scratch) / "stack", kept) as stack,
    ):
        model = prepare_model(Path(scratch), dry_run=options.dry_run)
        bare = BareEngine(_engine_options(model, options.dry_run), Path(scratch) / "bare.log")
        try:
            load = _start(stack, model, options.dry_run)
            bare.wait_up()
            for shape in DRY_SHAPES if options.dry_run else DEVICE_SHAPES:
                if time.monotonic() > deadline_s:
                    found["rows"].append({"shape": msgspec.to_builtins(shape), "left": True})
                    continue
                found["rows"].append(_measure(bare, load, shape, options.repeats))
                options.results.write_text(json.dumps(found, indent=1))
                print(json.dumps(found["rows"][-1]), flush=True)
            load.close()
        except Exception:
            print(stack.tails()[-5000:], flush=True)
            print((Path(scratch) / "bare.log").read_text(errors="replace")[-2500:], flush=True)
            raise
        finally:
            bare.close()
    print(_table(found["rows"]))
    return 0


def _start(stack: Stack, model: Path, dry_run: bool) -> Load:
    frontend = stack.start_frontend(migration_limit=0)
    flags = DRY_FLAGS if dry_run else (*DEVICE_FLAGS, *SIZE_FLAGS)
    worker = stack.start_worker(
        *("--model-path", str(model), "--served-model-name", NAME, "--load-format", "dummy"),
        *flags,
    )
    worker.wait_for(
        lambda: worker.system is not None and worker.system.get("/ready").status == 200,
        "the worker is ready",
        deadline_s=START_DEADLINE_S,
        ignore=(OSError,),
    )
    frontend.wait_for_model(NAME)
    return Load(f"http://127.0.0.1:{frontend.http_port}", NAME)


def _engine_options(model: Path, dry_run: bool) -> dict[str, Any]:
    """The worker's flags as arguments of `sgl.Engine`."""
    options: dict[str, Any] = {
        "model_path": str(model),
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "log_level": "warning",
        "random_seed": 7,
        "port": 32100,
        "nccl_port": 42100,
    }
    if dry_run:
        return {**options, "dtype": "float32", "attention_backend": "triton", "device": "cpu"}
    return {
        **options,
        "attention_backend": "triton",
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "mem_fraction_static": 0.4,
        "dtype": "bfloat16",
        "max_total_tokens": 600000,
        "max_running_requests": 128,
        "max_mamba_cache_size": 192,
        "context_length": 8192,
        "cuda_graph_max_bs_decode": 128,
        "cuda_graph_bs_decode": [1, 32, 128],
        "disable_prefill_cuda_graph": True,
        "disable_radix_cache": True,
    }


def _measure(bare: BareEngine, load: Load, shape: Shape, repeats: int) -> dict[str, Any]:
    """Rates of all four ways, in turn; the first round of each is a warm-up."""
    seconds: dict[str, list[float]] = {}
    firsts: dict[str, list[float]] = {}
    for turn in range(repeats + 1):
        ids = prompts(shape.batch, shape.prompt_tokens, turn)
        for stream, how in ((False, "whole"), (True, "stream")):
            answer = bare.round(ids, shape.new_tokens, stream=stream)
            outcome = load.round(ids, shape.new_tokens, stream=stream)
            wanted = shape.batch * shape.new_tokens
            if (answer["tokens"], outcome.tokens) != (wanted, wanted):
                raise RuntimeError(f"{answer['tokens']} and {outcome.tokens}, not {wanted} tokens")
            if turn == 0:
                continue
            seconds.setdefault(f"bare {how}", []).append(answer["seconds"])
            seconds.setdefault(f"worker {how}", []).append(outcome.ended_s - outcome.began_s)
            if stream:
                firsts.setdefault("bare", []).append(answer["first_ms"])
                firsts.setdefault("worker", []).append(first_median_ms(outcome) or 0.0)
    counted = shape.batch * (shape.prompt_tokens if shape.counts_prompts else shape.new_tokens)
    return {
        "shape": msgspec.to_builtins(shape),
        "tokens_per_s": {
            name: _spread([counted / one for one in taken]) for name, taken in seconds.items()
        },
        "first_token_ms": {name: _spread(taken) for name, taken in firsts.items()},
    }


def _spread(values: list[float]) -> list[float]:
    """Median, lowest, highest."""
    return [round(one, 2) for one in (statistics.median(values), min(values), max(values))]


def _table(rows: Sequence[dict[str, Any]]) -> str:
    lines = [
        "| shape | bare, whole | worker, whole | ratio | bare, stream | worker, stream | ratio | "
        "first token bare / worker, ms |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        shape = row["shape"]
        name = f"{shape['name']} {shape['batch']} x {shape['prompt_tokens']}+{shape['new_tokens']}"
        if row.get("left"):
            lines.append(f"| {name} | no time was left | | | | | | |")
            continue
        rates, first = row["tokens_per_s"], row["first_token_ms"]
        cells = []
        for how in ("whole", "stream"):
            ours, theirs = rates[f"worker {how}"], rates[f"bare {how}"]
            cells += [_rate(theirs), _rate(ours), f"{ours[0] / theirs[0]:.3f}"]
        firsts = f"{first['bare'][0]:.1f} / {first['worker'][0]:.1f}"
        lines.append("| " + " | ".join([name, *cells, firsts]) + " |")
    return "\n".join([*lines, ""])


def _rate(values: Sequence[float]) -> str:
    return f"{values[0]:,.0f} ({values[1]:,.0f} to {values[2]:,.0f})"


def _render(file: Path) -> int:
    found = json.loads(file.read_text())
    text = "\n".join([*found["head"], "", _table(found["rows"])])
    (RESULTS / "gpu_serving.md").write_text(text)
    (RESULTS / "gpu_serving.json").write_text(json.dumps(found, indent=1) + "\n")
    print(text)
    return 0


def _head(options: argparse.Namespace) -> list[str]:
    import sglang
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return [
        f"# The worker behind the frontend against a bare engine, on one {device}",
        "",
        f"`python -m benchmarks.gpu_serving --repeats {options.repeats}`, "
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, torch "
        f"{torch.__version__}, SGLang {sglang.__version__}, {os.cpu_count()} CPU cores. Qwen3-Next "
        "shape (hidden 2048, 8 layers at 3:1, 16 experts), random weights, bf16. Tokens per second "
        f"of a whole batch, median (lowest to highest) of {options.repeats}: prompt tokens in the "
        "prefill rows, generated tokens in the decode rows.",
    ]


if __name__ == "__main__":
    sys.exit(main())
