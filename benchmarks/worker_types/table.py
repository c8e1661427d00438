"""The rows as Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_rows import facts
from benchmarks.gpu_rows.markdown import head, line
from benchmarks.tensor_parallel.agreement import TOLERANCE_NATS
from benchmarks.worker_types.vectors import LEAST_COSINE

NAMES = ("row", "registered after", "attention backends", "answers", "SIGTERM")


def render(rows: dict[str, Any]) -> str:
    lines = [
        f"# Worker types on one {facts.device_name()}",
        "",
        f"{facts.versions()}. Every row: frontend and worker against a bare `sgl.Engine` with the "
        f"same flags on the same GPU. Vectors agree from a cosine of {LEAST_COSINE} on; chat "
        "answers agree when they part, if at all, only where the two best tokens are within "
        f"{TOLERANCE_NATS} nats.",
        "",
        *head(NAMES),
        *(line(_cells(name, row)) for name, row in rows.items()),
        "",
    ]
    return "\n".join(lines)


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    workers = row.get("workers", {})
    return [
        f"{name}: `{row['flags']}`",
        _each(workers, lambda one: f"{one['phases_s'].get('registered', 'never')} s"),
        _each(workers, _backends),
        f"FAILED: {row['failed'].splitlines()[0][:200]}" if row["failed"] else _answers(row),
        _each(workers, _ended),
    ]


def _each(workers: dict[str, Any], show: Any) -> str:
    return "; ".join(f"{name} {show(one)}" for name, one in workers.items())


def _backends(worker: dict[str, Any]) -> str:
    runners = worker.get("runners") or []
    pairs = [one["attention_backend"] for one in runners]
    return ", ".join(f"{one['decode']}/{one['prefill']}" for one in pairs if one) or "no report"


def _ended(worker: dict[str, Any]) -> str:
    ended = worker.get("sigterm")
    return f"exit {ended['exit_code']} after {ended['seconds']} s" if ended else "not reached"


def _answers(row: dict[str, Any]) -> str:
    if "vectors" in row:
        return _vectors(row["vectors"])
    if "texts" in row:
        found = row["texts"]
        return (
            f"{found['identical']} of {found['answers']} texts identical "
            f"({found['common_characters']} of {found['characters']} characters before they part)"
        )
    return _agreement(row["agreement"], row["refusals"])


def _vectors(found: dict[str, Any]) -> str:
    count = sum(one["vectors"] for one in found.values())
    least = min(one["least_cosine"] for one in found.values())
    largest = max(one["largest_difference"] for one in found.values())
    return (
        f"{count} vectors ({', '.join(found)}): least cosine {least}, values at most {largest} "
        f"apart (different texts: cosine {found['texts']['mean_cosine_between_inputs']} on average)"
    )


def _agreement(found: dict[str, Any], refusals: dict[str, str]) -> str:
    parted = found["gaps_where_parted_nats"]
    return (
        f"{found['identical']} of {found['prompts']} identical, {found['common_tokens']} of "
        f"{found['tokens']} tokens before they part, log-probabilities within "
        f"{found['largest_difference_nats']}"
        + (f", parted at gaps {parted}" if parted else "")
        + f"; {len(refusals)} kinds of faulty media refused with 400 and named"
    )
