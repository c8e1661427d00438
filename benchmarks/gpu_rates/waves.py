"""Waves of rows: a wave's engines start side by side and are then timed in turn, in rounds.

Within a round every row is timed once, alone: a machine that drifts meanwhile drifts for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.gpu_rates.rows import Row
from benchmarks.gpu_rates.turns import Turn, wait_for
from benchmarks.gpu_rows.processes import RowProcess
from benchmarks.gpu_rows.results import read_row

# Nothing is compiled yet in the first wave: it gets that much more of the time than a later one.
FIRST_SHARE = 1.5
# Of a wave's time, what it may spend until its engines are ready.
START_SHARE = 0.6
# Rows become ready close to each other: while one more does within this share, the start goes on,
# and it goes on while none has, as far as the last share.
STRAGGLER_SHARE = 0.05
LATEST_SHARE = 0.85
ROUND_LIMIT_S = 40.0
# A wave that has less than this is not started.
LEAST_S = 60.0
LOG_BYTES = 3000


class Plan(msgspec.Struct, frozen=True):
    """``command``: of one row, given its index, its folder and the end on the monotonic clock."""

    folder: Path
    rounds: int
    command: Callable[[Row, int, float], list[str]]
    least_s: float = LEAST_S


def split(rows: Sequence[Row], side_by_side: int) -> list[list[Row]]:
    return [list(rows[at : at + side_by_side]) for at in range(0, len(rows), side_by_side)]


def run(plan: Plan, waves: Sequence[Sequence[Row]], total_s: float) -> Iterator[dict[str, Any]]:
    """Every row's result, wave by wave; what a wave does not need goes to the later ones."""
    deadline_s = time.monotonic() + total_s
    index = 0
    for number, rows in enumerate(waves):
        left_s = deadline_s - time.monotonic()
        if left_s < plan.least_s:
            yield from (not_started(row) for row in rows)
            continue
        yield from _Wave(plan, rows, index, share_s(left_s, len(waves) - number, number)).run()
        index += len(rows)


def share_s(left_s: float, waves_left: int, number: int) -> float:
    own = FIRST_SHARE if number == 0 else 1.0
    return left_s * own / (own + waves_left - 1)


def not_started(row: Row) -> dict[str, Any]:
    return {"row": row.name, "kind": row.kind, "error": "not started: no time was left"}


class _Wave:
    def __init__(self, plan: Plan, rows: Sequence[Row], first: int, limit_s: float) -> None:
        self._plan = plan
        self._began_s = time.monotonic()
        self._end_s = self._began_s + limit_s
        self._limit_s = limit_s
        self._rows = dict(enumerate(rows, first))
        self._children: dict[int, RowProcess] = {}

    def run(self) -> list[dict[str, Any]]:
        try:
            for index, row in self._rows.items():
                command = self._plan.command(row, index, self._end_s)
                self._children[index] = RowProcess(command, self._log(index))
            self._wait_started()
            ready = self._ready()
            for index, child in self._children.items():
                # One that is not ready by now would compile while others are timed.
                child.pause() if index in ready else child.end()
            self._say(f"{len(ready)} of {len(self._rows)} rows are ready")
            self._time(ready)
        finally:
            for child in self._children.values():
                child.end()
        return [self._collected(index, row) for index, row in self._rows.items()]

    def _wait_started(self) -> None:
        latest_s = self._began_s + LATEST_SHARE * self._limit_s
        until_s = self._began_s + START_SHARE * self._limit_s
        while not wait_for(self._all_settled, until_s) and time.monotonic() < latest_s:
            before = len(self._ready())
            until_s = min(latest_s, time.monotonic() + STRAGGLER_SHARE * self._limit_s)
            more = wait_for(lambda count=before: len(self._ready()) > count, until_s)
            if before and not more:
                return

    def _ready(self) -> list[int]:
        return [index for index in self._rows if self._turn(index).ready.exists()]

    def _all_settled(self) -> bool:
        return all(
            self._children[index].ended or self._turn(index).ready.exists() for index in self._rows
        )

    def _time(self, ready: Sequence[int]) -> None:
        for number in range(self._plan.rounds):
            for index in ready:
                if not self._children[index].ended and time.monotonic() < self._end_s:
                    self._time_row(index, number)
            self._say(f"round {number} is over")

    def _time_row(self, index: int, number: int) -> None:
        child, turn = self._children[index], self._turn(index)
        turn.go(number).touch()
        child.go_on()
        limit_s = min(self._end_s, time.monotonic() + ROUND_LIMIT_S)
        if wait_for(lambda: child.ended or turn.done(number).exists(), limit_s):
            child.pause()
        else:
            # It would take the next row's time too.
            child.end()

    def _turn(self, index: int) -> Turn:
        return Turn(self._plan.folder, index)

    def _log(self, index: int) -> Path:
        return self._plan.folder / f"{index}.log"

    def _say(self, what: str) -> None:
        spent_s = time.monotonic() - self._began_s
        print(
            f"wave of {self._rows[min(self._rows)].name}: {what} after {spent_s:.0f} s", flush=True
        )

    def _collected(self, index: int, row: Row) -> dict[str, Any]:
        result = {"kind": row.kind, **read_row(row.name, self._plan.folder / f"{index}.json")}
        if "error" in result:
            result["log_tail"] = self._children[index].log_tail(LOG_BYTES)
            print(row.name, result["log_tail"], flush=True)
        return result
