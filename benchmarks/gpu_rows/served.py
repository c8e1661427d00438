"""Rows that start frontends and workers: one stack each, side by side within a group.

A row that fails says why and does not keep the others from running. The results are written
whenever a group has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tests.support.client import StreamResult
from tests.support.stack import Frontend, Stack

Rows = dict[str, dict[str, Any]]
ERROR_CHARACTERS, TRACE_CHARACTERS, LOG_CHARACTERS = 1500, 1500, 8000
PRINTED_LOG_CHARACTERS = 3500


def sglang_environment() -> dict[str, str]:
    """SGLang's own settings of this machine; a stack drops all others."""
    return {key: value for key, value in os.environ.items() if key.startswith("SGLANG_")}


def parser(description: str | None, groups: str, row_limit_s: float) -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(description=description)
    flags.add_argument("--results", type=Path, required=True)
    flags.add_argument("--table", type=Path, default=None)
    flags.add_argument("--groups", default=groups, help="rows of one group run side by side")
    flags.add_argument("--row-limit-s", type=float, default=row_limit_s)
    flags.add_argument("--dry-run", action="store_true")
    return flags


def run_row(
    folder: Path,
    environ: Mapping[str, str],
    row: dict[str, Any],
    serve: Callable[[Stack, dict[str, Any]], None],
) -> dict[str, Any]:
    """``row`` with what ``serve`` wrote into it; ``failed`` is None or the reason."""
    row["failed"] = None
    with Stack(folder, {**sglang_environment(), **environ}) as stack:
        try:
            serve(stack, row)
        except Exception as error:
            row["failed"] = f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS]
            row["trace"] = traceback.format_exc()[-TRACE_CHARACTERS:]
            row["logs"] = stack.tails()[-LOG_CHARACTERS:]
    return row


def run_groups(
    groups: str, run: Callable[[str], dict[str, Any]], note: Callable[[Rows], Rows]
) -> Rows:
    """``groups``: "a+b,c". ``note`` judges and writes all rows so far; its last answer is
    returned."""
    rows: Rows = {}
    judged: Rows = {}
    for group in groups.split(","):
        names = group.split("+")
        with ThreadPoolExecutor(len(names)) as pool:
            started = {name: pool.submit(run, name) for name in names}
        rows.update({name: future.result() for name, future in started.items()})
        judged = note(rows)
    return judged


class Table(Protocol):
    """A module that draws rows as Markdown."""

    def render(self, rows: Rows) -> str: ...


def run_table(
    options: argparse.Namespace,
    run: Callable[[str], dict[str, Any]],
    judge: Callable[[Rows], Rows],
    table: Table,
) -> int:
    """All groups of ``options``: run, judged, written and drawn; the exit code."""

    def note(rows: Rows) -> Rows:
        judged = judge(rows)
        write(options, judged, table.render)
        return judged

    judged = run_groups(options.groups, run, note)
    print(table.render(judged), flush=True)
    return ended(judged)


def write(options: argparse.Namespace, rows: Rows, render: Callable[[Rows], str]) -> None:
    options.results.write_text(json.dumps(rows, indent=1))
    if options.table is not None:
        options.table.write_text(render(rows))


def ended(rows: Rows) -> int:
    """Prints why rows failed; the exit code."""
    for name, row in rows.items():
        if row["failed"]:
            logs = row.get("logs", "")[-PRINTED_LOG_CHARACTERS:]
            print(f"--- {name}: {row['failed']}\n{logs}", flush=True)
    return 0 if all(row["failed"] is None for row in rows.values()) else 1


def start_streams(
    pool: ThreadPoolExecutor,
    frontend: Frontend,
    model: str,
    prompts: Sequence[str],
    tokens: int,
) -> list[Future[StreamResult]]:
    """A greedy chat stream of exactly ``tokens`` for each prompt, all at once."""
    return [
        pool.submit(
            frontend.client.stream_chat,
            model,
            prompt,
            max_tokens=tokens,
            temperature=0,
            ignore_eos=True,
            stream_options={"include_usage": True},
        )
        for prompt in prompts
    ]


def stream_counts(results: Sequence[StreamResult]) -> dict[str, Any]:
    """How many streams are whole, and how many tokens they have."""
    return {
        "complete": sum(one.complete and not one.errors for one in results),
        "tokens": sorted({(one.usage or {}).get("completion_tokens") for one in results}, key=str),
    }


def require(expected: Mapping[str, tuple[Any, Any]]) -> None:
    """``expected``: what -> (found, wanted). Raises AssertionError naming all that differ."""
    wrong = [
        f"{what} is {found!r}, not {wanted!r}"
        for what, (found, wanted) in expected.items()
        if found != wanted
    ]
    if wrong:
        raise AssertionError("; ".join(wrong))
