"""How long a start takes, and how long the first client then waits: ours beside upstream's worker.

    python -m benchmarks.startup [--repeats 5] [--out NAME] [--only ours] -- [worker flags]

Per repeat and worker one fresh process on the demo model, both kinds in turn, behind one frontend:

- imports: ``python -c "import …"`` of everything that the worker loads before its engine starts;
- registered: from the process's start until the frontend lists the model;
- first answer: from that moment until the first chat answer (8 tokens) is complete;
- later answers: the median of five more, the same size.

Writes benchmarks/results/startup.json and startup.md. Other models and flags: ``--model DIR`` and
flags after ``--``. ``--gpu``: the model and the flags of ``benchmarks.gpu_worker``, random weights
(``--gpu-dry-run``: its tiny model, on the CPU platform); our worker alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks import gpu_worker
from benchmarks.drain_proof.fleet import upstream_kind
from benchmarks.gpu_rows import facts, served
from tests.support.checkpoints import checkpoint
from tests.support.stack import NOT_UP_YET, Frontend, Stack, Worker
from tests.support.wait import wait_until

RESULTS = Path(__file__).parent / "results"
MODEL = "demo"
TOKENS = 8
LATER = 5
POLL_S = 0.01


class Kind(msgspec.Struct, frozen=True):
    name: str
    imports: str
    environ: Mapping[str, str] = {}


class Start(msgspec.Struct, frozen=True):
    kind: str
    imports_s: float
    registered_s: float
    first_answer_s: float
    later_answer_s: float


OURS = Kind("ours", "import sglang_worker.boot.serving, sglang_worker.engine.launch, sglang")


def kinds(only: str | None) -> list[Kind]:
    if only == OURS.name:
        return [OURS]
    environ = dict(upstream_kind(checkpoint("gdn")).environ)
    upstream = Kind("upstream", "import dynamo.sglang.main, sglang", environ)
    return [OURS, upstream] if only is None else [upstream]


def imports_s(kind: Kind, environ: Mapping[str, str]) -> float:
    began_s = time.monotonic()
    subprocess.run(
        [sys.executable, "-c", kind.imports],
        env={**environ, **kind.environ},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    return time.monotonic() - began_s


def answer_s(frontend: Frontend, number: int) -> float:
    began_s = time.monotonic()
    reply = frontend.client.chat(
        MODEL, f"[{number}] Hello.", max_tokens=TOKENS, temperature=0, ignore_eos=True
    )
    if reply.status != 200:
        raise RuntimeError(f"the answer is {reply.status}: {reply.text}")
    return time.monotonic() - began_s


def measure(kind: Kind, model: Path, flags: Sequence[str], deadline_s: float) -> Start:
    with Stack(environ=served.sglang_environment()) as stack:
        loaded_s = imports_s(kind, stack.environ())
        frontend = stack.start_frontend()
        began_s = time.monotonic()
        worker = stack.start_worker(
            "--model-path",
            str(model),
            "--served-model-name",
            MODEL,
            *flags,
            environ=kind.environ,
            with_system_port=False,
        )
        wait_listed(frontend, worker, deadline_s)
        registered_s = time.monotonic() - began_s
        first_s = answer_s(frontend, 0)
        later_s = statistics.median(answer_s(frontend, number) for number in range(1, 1 + LATER))
        return Start(kind.name, loaded_s, registered_s, first_s, later_s)


def wait_listed(frontend: Frontend, worker: Worker, deadline_s: float) -> None:
    def listed() -> bool:
        worker.require_running()
        return MODEL in frontend.client.models()

    wait_until(
        listed, "the model is listed", deadline_s=deadline_s, interval_s=POLL_S, ignore=NOT_UP_YET
    )


def table(starts: Sequence[Start], command: str, flags: Sequence[str]) -> str:
    device = f", {facts.device_name()}" if "--gpu" in command else ""
    lines = [
        "# Start and first request",
        "",
        f"`{command}`",
        f"on {os.cpu_count()} cores ({platform.machine()}){device}, Python "
        f"{platform.python_version()}, "
        f"ai-dynamo {version('ai-dynamo')}, sglang {version('sglang')}, "
        f"{datetime.now(timezone.utc):%Y-%m-%d}; the kinds in turn, "
        "median (lowest to highest) in seconds. Worker flags: "
        f"{' '.join(flags) or 'none'}.",
        "",
        "| worker | starts | imports | registered | first answer after that | later answers |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    fields = ("imports_s", "registered_s", "first_answer_s", "later_answer_s")
    for name in dict.fromkeys(start.kind for start in starts):
        mine = [start for start in starts if start.kind == name]
        cells = [spread([getattr(start, field) for start in mine]) for field in fields]
        lines.append(f"| {name} | {len(mine)} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("ours", "upstream"))
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", default="startup")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--deadline-s", type=float, default=300.0)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--gpu-dry-run", action="store_true")
    given, flags = parser.parse_known_args(argv)
    flags = [flag for flag in flags if flag != "--"]
    if not (given.gpu or given.gpu_dry_run):
        return run(given, kinds(given.only), given.model or checkpoint("gdn"), flags)
    sizes = gpu_worker.DEVICE_FLAGS if given.gpu else gpu_worker.DRY_FLAGS
    with tempfile.TemporaryDirectory(prefix="startup-") as scratch:
        model = gpu_worker.prepare_model(Path(scratch), dry_run=not given.gpu)
        return run(given, [OURS], model, ["--load-format", "dummy", *sizes, *flags])


def run(
    given: argparse.Namespace, chosen: Sequence[Kind], model: Path, flags: Sequence[str]
) -> int:
    starts = []
    for number in range(given.repeats):
        # The one that goes second finds warmer file caches: take turns.
        for kind in chosen if number % 2 == 0 else reversed(chosen):
            starts.append(measure(kind, model, flags, given.deadline_s))
            print(msgspec.json.encode(starts[-1]).decode(), flush=True)
            # Written every time: a run that is cut short leaves what it has seen.
            command = f"python -m benchmarks.startup --repeats {given.repeats}"
            command += " --gpu" if given.gpu else ""
            write(given.results / given.out, starts, command, flags)
    return 0


def write(stem: Path, starts: Sequence[Start], command: str, flags: Sequence[str]) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_name(f"{stem.name}.md").write_text(table(starts, command, flags))
    record = json.dumps(msgspec.to_builtins(starts), indent=1) + "\n"
    stem.with_name(f"{stem.name}.json").write_text(record)


if __name__ == "__main__":
    sys.exit(main())
