"""The serving rows and their page."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import msgspec

from benchmarks.machine import sentence
from benchmarks.serving_proof.client import Load, Round

COLUMNS = {
    "requests_per_s": "requests/s",
    "tokens_per_s": "tokens/s",
    "first_p50_ms": "first token p50, ms",
    "first_p99_ms": "p99",
    "gap_p50_ms": "between tokens p50, ms",
    "gap_p99_ms": "p99",
    "cpu_us_per_token": "CPU per token, us",
}


class Row(msgspec.Struct, frozen=True):
    system: str
    load: Load
    rounds: tuple[Round, ...]

    def values(self, field: str) -> list[float]:
        return [getattr(one, field) for one in self.rounds]

    def median(self, field: str) -> float:
        return statistics.median(self.values(field))

    def cell(self, field: str) -> str:
        values = self.values(field)
        digits = 0 if statistics.median(values) >= 100 else 1
        low, high = min(values), max(values)
        return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def markdown(machine: dict[str, Any], rows: Sequence[Row], flags: str) -> str:
    rounds = len(rows[0].rounds)
    lines = [
        "# Serving on the CPU",
        "",
        f"{sentence(machine)} `python -m benchmarks.serving --write`: the demo target, streamed "
        f"chat; median (lowest–highest) of {rounds} rounds, one system at a time, forwards and "
        "then backwards. Engine, servers, frontend and client share the cores. Engine flags "
        "everywhere: "
        f"`{flags}`.",
        "",
        "CPU: of the process that holds SGLang's tokenizer manager, the worker or SGLang's server; "
        "neither engine nor frontend. The last column is tokens per second as a share of SGLang's.",
        "",
        "| load | system | " + " | ".join(COLUMNS.values()) + " | of SGLang's |",
        "| --- " * (len(COLUMNS) + 3) + "|",
    ]
    own = {row.load: row for row in rows if row.system == "sglang"}
    for load in dict.fromkeys(row.load for row in rows):
        for row in (one for one in rows if one.load == load):
            cells = " | ".join(row.cell(field) for field in COLUMNS)
            share = ""
            if load in own:
                share = f"{row.median('tokens_per_s') / own[load].median('tokens_per_s'):.2f}"
            lines.append(f"| {load.name} | {row.system} | {cells} | {share} |")
    return "\n".join(lines) + "\n"
