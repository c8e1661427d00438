"""The rows as Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.tensor_parallel.agreement import TOLERANCE_NATS

HEAD = (
    "| row | registered after | answers against the aggregated worker | first token, ms per prompt "
    "tokens | SIGTERM with prompts in flight | transports |\n| --- | --- | --- | --- | --- | --- |"
)


def render(rows: dict[str, Any]) -> str:
    lines = [
        "# Prefill and decode on two GPUs",
        "",
        "Answers agree when they part, if at all, only where the reference's two best tokens are "
        f"within {TOLERANCE_NATS} nats of each other. The first token's time is the least of three "
        "prompts, through frontend and worker.",
        "",
        HEAD,
        *(_line(name, row) for name, row in rows.items()),
        "",
    ]
    return "\n".join(lines)


def _line(name: str, row: dict[str, Any]) -> str:
    cells = [
        name,
        f"{row['registered_after_s']} s" if "registered_after_s" in row else "",
        _answers(row),
        ", ".join(f"{tokens}: {ms}" for tokens, ms in row.get("first_token_ms", {}).items()),
        _streams(row.get("streams")),
        "; ".join(row.get("transports", ())),
    ]
    return "| " + " | ".join(cells) + " |"


def _answers(row: dict[str, Any]) -> str:
    if row["failed"]:
        return f"FAILED: {row['failed'].splitlines()[0][:160]}"
    found = row.get("agreement")
    if not found:
        return "reference"
    parted = found["gaps_where_parted_nats"]
    return (
        f"{found['identical']} of {found['prompts']} identical, log-probabilities within "
        f"{found['largest_difference_nats']}" + (f", parted at gaps {parted}" if parted else "")
    )


def _streams(streams: dict[str, Any] | None) -> str:
    if streams is None:
        return ""
    return (
        f"{streams['in_flight_at_sigterm']} in flight, {streams['complete']} complete, "
        f"exit {streams['exit_code']} after {streams['seconds']} s"
    )
