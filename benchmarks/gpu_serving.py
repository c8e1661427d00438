"""A hybrid GDN model on a GPU: bare `sgl.Engine` against the worker behind the frontend.

    python -m benchmarks.gpu_serving --results FILE.json [--gateway-workers N] [--dry-run]
    python -m benchmarks.gpu_serving --render FILE.json        # writes benchmarks/results/

Same model, same arguments, same prompts, all alive at once and asked in turn; random weights, no
prefix cache. "stream" asks for every token as it comes, "whole" for whole answers. Rates are
generated tokens (decode) or prompt tokens (prefill) per second of wall time of a whole batch.
``--gateway-workers N`` adds a worker with N gateways, ``--before DIR`` one whose package comes from
another checkout's ``components``; CPU per token adds all relaying processes up. ``--profile DIR``
notes the busiest threads of every shape, and what py-spy saw of the largest decode batch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
from sglang_worker.demo.vocabulary import VOCABULARY_SIZE

from benchmarks.gpu_rates import cpu, pyspy, threads
from benchmarks.gpu_rates.bare import BareEngine
from benchmarks.gpu_rates.http_load import first_median_ms
from benchmarks.gpu_rates.served import Served, start, variants
from benchmarks.gpu_rates.serving_table import tables
from benchmarks.gpu_rates.shapes import prompts
from benchmarks.gpu_rows import facts
from benchmarks.gpu_rows.options import engine_options
from benchmarks.gpu_worker import DEVICE_FLAGS, DRY_FLAGS, prepare_model

RESULTS = Path(__file__).parent / "results"
PROFILED = ("bare", "worker", "worker before")


class Shape(msgspec.Struct, frozen=True):
    name: str
    batch: int
    prompt_tokens: int
    new_tokens: int

    @property
    def counts_prompts(self) -> bool:
        return self.name == "prefill"


DEVICE_SHAPES = (
    *(Shape("decode", batch, 128, 256) for batch in (128, 32, 1)),
    *(Shape("prefill", batch, 4096, 8) for batch in (1, 32, 128)),
)
DRY_SHAPES = (Shape("decode", 4, 8, 8), Shape("decode", 1, 8, 8), Shape("prefill", 2, 60, 2))
# Schedulers without work sleep, for all systems, or the idle ones would take a core each.
IDLE_FLAG = "--sleep-on-idle"
SIZE_FLAGS = (
    *("--max-total-tokens", "600000", "--max-running-requests", "128"),
    *("--max-mamba-cache-size", "160", "--cuda-graph-max-bs-decode", "128"),
    *("--cuda-graph-bs-decode", "1", "32", "128", "--disable-radix-cache"),
    *("--mem-fraction-static", "0.8"),
)


def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    if options.render:
        return _render(options.render)
    deadline_s = time.monotonic() + options.total
    found: dict[str, Any] = {"head": _head(options), "rows": []}
    with ExitStack() as stacks:
        scratch = Path(stacks.enter_context(TemporaryDirectory(prefix="gpu-serving-")))
        model = prepare_model(scratch, dry_run=options.dry_run)
        fit_vocabulary(model)
        bare = BareEngine(_engine_options(model, options.dry_run), scratch / "bare.log")
        stacks.callback(bare.close)
        flags = DRY_FLAGS if options.dry_run else (*DEVICE_FLAGS, *SIZE_FLAGS)
        wanted = variants(options.gateway_workers, options.before)
        served = start(stacks, scratch, model, (*flags, IDLE_FLAG), wanted)
        bare.wait_up()
        shapes = DRY_SHAPES if options.dry_run else DEVICE_SHAPES
        for shape in shapes:
            if time.monotonic() > deadline_s:
                found["rows"].append({"shape": msgspec.to_builtins(shape), "left": True})
                continue
            found["rows"].append(_measure(bare, served, shape, options))
            options.results.write_text(json.dumps(found, indent=1))
        if options.profile:
            found["profiles"] = _profiles(bare, served, shapes[0], options.profile)
            options.results.write_text(json.dumps(found, indent=1))
        for one in served.values():
            one.load.close()
    print(tables(found["rows"]))
    print(json.dumps([row.get("threads") for row in found["rows"]], indent=1))
    return 0


def _parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--results", type=Path, default=Path("gpu_serving.part.json"))
    flags.add_argument("--repeats", type=int, default=5)
    flags.add_argument("--modes", default="stream,whole", help="of stream and whole")
    flags.add_argument("--total", type=float, default=330.0, help="seconds; later shapes are left")
    flags.add_argument("--gateway-workers", type=int, default=1, help="one more worker with these")
    flags.add_argument("--before", default="", help="another checkout's components folder")
    flags.add_argument("--profile", type=Path, help="a folder for py-spy's stacks")
    flags.add_argument("--dry-run", action="store_true", help="a tiny model on the CPU platform")
    flags.add_argument("--render", type=Path)
    return flags


def fit_vocabulary(model: Path) -> None:
    """The frontend sends nothing for ids that its tokenizer lacks: first tokens would seem late."""
    file = model / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "vocab_size": VOCABULARY_SIZE}))


def _engine_options(model: Path, dry_run: bool) -> dict[str, Any]:
    """The worker's flags as arguments of `sgl.Engine`."""
    own = {"log_level": "warning", "port": 20100, "nccl_port": 20400, "sleep_on_idle": True}
    if dry_run:
        only_model = {"model_path": str(model), "load_format": "dummy", "skip_tokenizer_init": True}
        dry = {"dtype": "float32", "attention_backend": "triton", "device": "cpu"}
        return {**only_model, "random_seed": 7, **own, **dry}
    sizes = {
        "max_total_tokens": 600000,
        "max_running_requests": 128,
        "max_mamba_cache_size": 160,
        "context_length": 8192,
        "cuda_graph_max_bs_decode": 128,
        "cuda_graph_bs_decode": [1, 32, 128],
        "disable_radix_cache": True,
    }
    return engine_options(str(model), 0, own, dry_run=False, device=sizes)


class Book(msgspec.Struct):
    """What one way of asking took, per round."""

    seconds: list[float] = []
    first_ms: list[float] = []
    # CPU microseconds per token of the worker's and the frontend's process.
    worker_us: list[float] = []
    frontend_us: list[float] = []
    # The busiest threads of the last round.
    threads: list[str] = []


def _profiles(
    bare: BareEngine, served: dict[str, Served], shape: Shape, folder: Path
) -> dict[str, Any]:
    """What py-spy saw of the processes that hand out tokens, at ``shape``, streamed."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = prompts(shape.batch, shape.prompt_tokens, 0, VOCABULARY_SIZE)
    found = {}
    for name in PROFILED:
        if name == "bare":
            pid, ask = bare.pid, lambda: bare.round(ids, shape.new_tokens, stream=True)
        elif (one := served.get(name)) is not None:
            pid, ask = (
                one.worker_pid,
                lambda o=one: o.load.round(ids, shape.new_tokens, stream=True),
            )
        else:
            continue
        found[name] = pyspy.record(pid, ask, folder / f"{name.replace(' ', '-')}.folded")
    return found


def _measure(
    bare: BareEngine, served: dict[str, Served], shape: Shape, options: argparse.Namespace
) -> dict[str, Any]:
    """Every way in turn; the first round of each is a warm-up."""
    books: dict[str, Book] = {}
    for turn in range(options.repeats + 1):
        ids = prompts(shape.batch, shape.prompt_tokens, turn, VOCABULARY_SIZE)
        for how in options.modes.split(","):
            stream = how == "stream"
            _ask_bare(bare, ids, shape.new_tokens, stream, books.setdefault(f"bare {how}", Book()))
            for name, one in served.items():
                _ask(one, ids, shape.new_tokens, stream, books.setdefault(f"{name} {how}", Book()))
        if not turn:
            books.clear()
    counted = shape.batch * (shape.prompt_tokens if shape.counts_prompts else shape.new_tokens)
    return {
        "shape": msgspec.to_builtins(shape),
        "tokens_per_s": {
            name: _spread([counted / one for one in book.seconds]) for name, book in books.items()
        },
        # Round by round: systems were asked in turn, so one round's ratio has less drift in it.
        "seconds": {name: [round(one, 4) for one in book.seconds] for name, book in books.items()},
        "first_token_ms": {
            name: _spread(book.first_ms) for name, book in books.items() if book.first_ms
        },
        "cpu_us_per_token": {
            name: [statistics.median(book.worker_us), statistics.median(book.frontend_us)]
            for name, book in books.items()
            if book.worker_us
        },
        "threads": {name: book.threads for name, book in books.items()},
    }


def _ask_bare(
    bare: BareEngine, ids: list[list[int]], new_tokens: int, stream: bool, book: Book
) -> None:
    before, began_s = threads.look({"bare": bare.pid}), time.monotonic()
    answer = bare.round(ids, new_tokens, stream=stream)
    _require(answer["tokens"], len(ids) * new_tokens)
    book.threads = threads.shares(
        before, threads.look({"bare": bare.pid}), time.monotonic() - began_s
    )
    book.seconds.append(answer["seconds"])
    book.first_ms += [answer["first_ms"]] if stream else []


def _ask(one: Served, ids: list[list[int]], new_tokens: int, stream: bool, book: Book) -> None:
    before = (one.worker_spent_s(), cpu.spent_s(one.frontend_pid))
    busy = threads.look(one.pids())
    outcome = one.load.round(ids, new_tokens, stream=stream)
    _require(outcome.tokens, len(ids) * new_tokens)
    book.threads = threads.shares(busy, threads.look(one.pids()), outcome.ended_s - outcome.began_s)
    spent = (one.worker_spent_s() - before[0], cpu.spent_s(one.frontend_pid) - before[1])
    book.seconds.append(outcome.ended_s - outcome.began_s)
    book.worker_us.append(round(1e6 * spent[0] / outcome.tokens, 1))
    book.frontend_us.append(round(1e6 * spent[1] / outcome.tokens, 1))
    if (first_ms := first_median_ms(outcome)) is not None:
        book.first_ms.append(first_ms)


def _require(tokens: int, wanted: int) -> None:
    if tokens != wanted:
        raise RuntimeError(f"{tokens} tokens came, not {wanted}")


def _spread(values: list[float]) -> list[float]:
    """Median, lowest, highest."""
    return [round(one, 2) for one in (statistics.median(values), min(values), max(values))]


def _render(file: Path) -> int:
    found = latest(json.loads(file.read_text()))
    text = "\n".join([*found["head"], "", tables(found["rows"])])
    (RESULTS / "gpu_serving.md").write_text(text)
    (RESULTS / "gpu_serving.json").write_text(json.dumps(found, indent=1) + "\n")
    print(text)
    return 0


def latest(found: dict[str, Any]) -> dict[str, Any]:
    """Of a file that holds several runs by name, the first: the newest is put in front."""
    if "rows" in found:
        return found
    first: dict[str, Any] = next(iter(found.values()))
    return first


def _head(options: argparse.Namespace) -> list[str]:
    return [
        f"# The worker behind the frontend against a bare engine, on one {facts.device_name()}",
        "",
        f"`python -m benchmarks.gpu_serving --repeats {options.repeats}`, "
        f"{facts.versions()}, {os.cpu_count()} CPU cores. Qwen3-Next "
        "shape (hidden 2048, 8 layers at 3:1, 16 experts), random weights, bf16. Tokens per second "
        f"of a whole batch, median (lowest to highest) of {options.repeats}: prompt tokens in the "
        "prefill rows, generated tokens in the decode rows.",
    ]


if __name__ == "__main__":
    sys.exit(main())
