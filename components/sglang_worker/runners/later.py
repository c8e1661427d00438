"""Compares a later `get_internal_state` read with the startup report. Pure but for the watch."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.runners import merge
from sglang_worker.runners.records import RankRecord
from sglang_worker.runners.report import SERVER_INFO_KEY, RunnerReport, from_builtins

logger = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True):
    """A field that a later read shows differently than the startup report."""

    runner: str
    rank: int
    field: str
    was: object
    now: object

    @property
    def sentence(self) -> str:
        was, now = (msgspec.json.encode(v).decode() for v in (self.was, self.now))
        return (
            f"runner {self.runner}, rank {self.rank}: {self.field} was {was} at startup and is "
            f"{now} now"
        )


def compare(
    startup: Mapping[int, RankRecord], internal_states: Iterable[Mapping[str, Any]]
) -> tuple[Change, ...]:
    """Changes in `get_internal_state` entries (one per data-parallel rank's leader)."""
    changes: list[Change] = []
    for state in internal_states:
        try:
            reports = from_builtins(state.get(SERVER_INFO_KEY))
        except msgspec.ValidationError as error:
            changes.append(Change("target", -1, SERVER_INFO_KEY, "a runner list", str(error)))
            continue
        for report in reports:
            changes.extend(_changed(report, startup))
        changes.extend(_vanished(reports, startup))
    return tuple(changes)


def _vanished(now: Sequence[RunnerReport], startup: Mapping[int, RankRecord]) -> Iterable[Change]:
    """Runners that a rank reported at startup and does not mention any more."""
    for rank in sorted({rank for report in now for rank in report.ranks} & startup.keys()):
        mentioned = {report.runner for report in now if rank in report.ranks}
        for record in startup[rank].runners:
            if record.report.runner not in mentioned:
                yield Change(record.report.runner, rank, "runner", record.report.model, None)


def _changed(now: RunnerReport, startup: Mapping[int, RankRecord]) -> Iterable[Change]:
    for rank in now.ranks:
        record = startup.get(rank)
        if record is None:
            continue  # another node's rank: its own worker checks it
        was = next((r.report for r in record.runners if r.report.runner == now.runner), None)
        if was is None:
            yield Change(now.runner, rank, "runner", None, now.model)
            continue
        for field in (*merge.COMPARED_FIELDS, "agrees"):
            if getattr(was, field) != getattr(now, field):
                yield Change(now.runner, rank, field, getattr(was, field), getattr(now, field))


class RunnerWatch:
    """The reports that surfaces show, and whether later reads still confirm them.

    `healthy` turns false for good at the first change when strict; without strictness a change
    only marks the report invalid and is logged.
    """

    def __init__(
        self, records: Mapping[int, RankRecord], reports: Sequence[RunnerReport], *, strict: bool
    ) -> None:
        self._records = records
        self._reports = tuple(reports)
        self._strict = strict
        self._changes: tuple[Change, ...] = ()

    @property
    def reports(self) -> tuple[RunnerReport, ...]:
        return self._reports

    @property
    def records(self) -> Mapping[int, RankRecord]:
        return self._records

    @property
    def strict(self) -> bool:
        return self._strict

    def join(self, records: Mapping[int, RankRecord], reports: Sequence[RunnerReport]) -> None:
        """Other nodes have reported: ``records`` of all nodes and what they make together."""
        self._records = records
        self._reports = tuple(reports)

    @property
    def healthy(self) -> bool:
        return not (self._strict and self._changes)

    @property
    def changes(self) -> tuple[Change, ...]:
        return self._changes

    def note(self, internal_states: Iterable[Mapping[str, Any]]) -> tuple[Change, ...]:
        """Takes a later read into account; returns the changes that are new."""
        found = compare(self._records, internal_states)
        new = tuple(change for change in found if change not in self._changes)
        for change in new:
            logger.error("the runner report no longer holds: %s", change.sentence)
        if new:
            self._changes += new
            self._reports = tuple(self._marked(report) for report in self._reports)
        return new

    def _marked(self, report: RunnerReport) -> RunnerReport:
        touched = any(
            change.rank == -1 or (change.runner == report.runner and change.rank in report.ranks)
            for change in self._changes
        )
        return msgspec.structs.replace(report, report_valid=report.report_valid and not touched)
