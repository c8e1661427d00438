"""Embedding, LLM diffusion and multimodal workers on one GPU, each against a bare engine.

    python -m benchmarks.gpu_types --results FILE.json [--total 240] [--dry-run]

Wants what ``benchmarks.gpu_worker`` wants, transformers, torchvision and Pillow. Checkpoints are
drawn where it runs. All rows start at once; one that fails says why and does not keep the others
from running, and the logs of such rows lie in FILE-logs.tar.gz. Writes FILE.json and FILE.md.
``--dry-run`` is the same on the CPU platform with tiny models, one row after the other. The exit
code is 1 when a row failed.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.gpu_rows import served
from benchmarks.gpu_rows.results import write_whole
from benchmarks.worker_types import parts, table
from benchmarks.worker_types.models import write_models
from benchmarks.worker_types.rows import Clock, Row, RowRun

REFERENCE, BY_ENCODER = "multimodal", "encode"
TOTAL_S, DRY_TOTAL_S = 240.0, 1500.0
DEVICE_FLAGS = (
    *("--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--grammar-backend", "none", "--dtype", "bfloat16"),
    # The tokens bound the pools; the fraction has to leave room for what the rows beside it take
    # while this one starts.
    *("--mem-fraction-static", "0.5", "--max-total-tokens", "20000"),
    *("--max-running-requests", "16"),
    *("--cuda-graph-max-bs-decode", "4", "--disable-prefill-cuda-graph"),
)
DRY_FLAGS = (
    *("--device", "cpu", "--attention-backend", "triton", "--sampling-backend", "pytorch"),
    *("--dtype", "float32", "--disable-cuda-graph", "--mem-fraction-static", "0.3"),
    *("--max-total-tokens", "8192", "--max-running-requests", "16", "--sleep-on-idle"),
)
ENVIRONMENT = {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0.5"}
# As the worker sets it for itself on the CPU platform, before torch is loaded.
DRY_ENVIRONMENT = {"TORCHDYNAMO_DISABLE": "1"}

EMBEDDING = {"worker": ("--embedding-worker",)}
DLLM = ("--dllm-algorithm", "LowConfidence")
LOCAL = ("--embedding-transfer-mode", "local", "--disaggregation-mode")
# SGLang's default on this generation, fa3, is a part of sglang-kernel that may be left out.
VISION = ("--mm-attention-backend", "triton_attn")
ROWS = {
    "embedding": Row("decoder", parts.embedding(shortened=True), EMBEDDING, ("--is-embedding",)),
    "bidirectional": Row(
        "encoder",
        parts.embedding(shortened=False),
        EMBEDDING,
        # What the worker sets by itself for such a model.
        ("--is-embedding", "--disable-radix-cache", "--chunked-prefill-size", "-1"),
    ),
    "dllm": Row("dllm", parts.completion(), {"worker": DLLM}, DLLM),
    REFERENCE: Row(
        "vlm",
        parts.images(),
        {"worker": ("--enable-multimodal",)},
        ("--enable-multimodal",),
        device=VISION,
        drains=True,
    ),
    BY_ENCODER: Row(
        "vlm",
        parts.images(),
        {
            "encode": ("--enable-multimodal", *LOCAL, "encode"),
            "pd": ("--enable-multimodal", "--dedicated-mm-encoder", *LOCAL, "pd"),
        },
        None,
        device=VISION,
    ),
}
GROUPS = "+".join(ROWS)


def main() -> int:
    options = parse()
    clock = Clock(options.total)
    with tempfile.TemporaryDirectory(prefix="gpu-types-") as folder:
        scratch = Path(folder)
        names = options.groups.replace("+", ",").split(",")
        wanted = [ROWS[name].model for name in names]
        models = write_models(scratch, wanted, dry_run=options.dry_run)

        ended: dict[str, Any] = {}

        def run(name: str) -> dict[str, Any]:
            flags = machine_flags(models[ROWS[name].model], ROWS[name], options.dry_run)
            environ = {**ENVIRONMENT, **(DRY_ENVIRONMENT if options.dry_run else {})}
            ended[name] = run_row(ROWS[name], flags, environ, scratch / name, clock)
            write_whole(options.results, dict(ended), indent=1, label=name)
            print(f"{name}: {ended[name]['failed'] or 'answered'}"[:300], flush=True)
            return dict(ended[name])

        def judged(rows: dict[str, Any]) -> dict[str, Any]:
            found = judge(rows)
            keep_logs(found, scratch, options.results)
            return found

        return served.run_table(options, run, judged, table)


def parse() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--results", type=Path, required=True)
    flags.add_argument("--groups", help=f"rows with + between them run together; of {GROUPS}")
    flags.add_argument("--total", type=float, help="seconds after which everything has ended")
    flags.add_argument("--dry-run", action="store_true")
    options = flags.parse_args()
    options.table = options.results.with_suffix(".md")
    options.groups = options.groups or (",".join(ROWS) if options.dry_run else GROUPS)
    options.total = options.total or (DRY_TOTAL_S if options.dry_run else TOTAL_S)
    return options


def machine_flags(model: Path, wanted: Row, dry_run: bool) -> tuple[str, ...]:
    machine = DRY_FLAGS if dry_run else (*DEVICE_FLAGS, *wanted.device)
    return ("--model-path", str(model), *machine)


def run_row(
    wanted: Row, flags: tuple[str, ...], environ: dict[str, str], folder: Path, clock: Clock
) -> dict[str, Any]:
    row: dict[str, Any] = {"flags": wanted.flags}
    try:
        served.run_row(
            folder,
            environ,
            row,
            lambda stack, row: RowRun(stack, wanted, row, flags, clock).run(),
        )
    except Exception as error:  # processes that outlived the stack that started them
        row["failed"] = f"{row.get('failed') or ''} {type(error).__name__}: {error}".strip()[:3000]
    return row


def judge(rows: dict[str, Any]) -> dict[str, Any]:
    """Answers by way of the encode worker beside those of the other row: of its bare engine, or
    of its worker where the engine brought none."""
    judged = {name: dict(row) for name, row in rows.items()}
    row = judged.get(BY_ENCODER)
    if row is None or row["failed"] is not None:
        return judged
    other = rows.get(REFERENCE, {})
    reference = other.get("reference") or other.get("answers")
    if reference is None:
        row["failed"] = f"the row {REFERENCE} has no answers to compare with"
    else:
        wrong = ROWS[BY_ENCODER].part.settle(row, row["answers"], reference)
        row["failed"] = "; ".join(wrong) or None
        del row["reference"]  # it is the other row's
    return judged


def keep_logs(rows: dict[str, Any], scratch: Path, results: Path) -> None:
    """Whole logs of the rows that failed, in one file beside the results."""
    failed = [name for name, row in rows.items() if row["failed"]]
    if failed:
        with tarfile.open(results.with_name(f"{results.stem}-logs.tar.gz"), "w:gz") as archive:
            for name in failed:
                archive.add(scratch / name / "logs", arcname=name)


if __name__ == "__main__":
    sys.exit(main())
