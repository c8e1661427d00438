"""One report per runner from the records of all ranks, and the ranks that do not fit in. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from sglang_worker.runners.records import RankRecord
from sglang_worker.runners.report import RunnerReport

COMPARED_FIELDS = (
    "model",
    "family",
    "attention_backend",
    "stamp",
    "source",
    "kernels",
    "shared_experts_fusion",
)


class Disagreement(msgspec.Struct, frozen=True):
    """Two ranks that describe the same runner differently."""

    runner: str
    field: str
    rank: int
    value: object
    other_rank: int
    other_value: object

    @property
    def sentence(self) -> str:
        return (
            f"runner {self.runner}: ranks disagree on {self.field}: rank {self.rank} has "
            f"{self._show(self.value)}, rank {self.other_rank} has {self._show(self.other_value)}"
        )

    @staticmethod
    def _show(value: object) -> str:
        return msgspec.json.encode(value).decode()


def merge(records: Mapping[int, RankRecord]) -> tuple[RunnerReport, ...]:
    """Reports in the order target, drafts; ranks that agree share one entry.

    Ranks that disagree (only without strictness does anybody see it) keep entries of their own.
    """
    merged: list[list[RunnerReport]] = []
    for name in _runner_names(records.values()):
        groups: list[list[RunnerReport]] = []
        for report in _of_runner(name, records):
            home = next((g for g in groups if not _differing(g[0], report)), None)
            if home is None:
                groups.append([report])
            else:
                home.append(report)
        merged.extend(groups)
    return tuple(_join(group) for group in merged)


def disagreements(records: Mapping[int, RankRecord]) -> list[Disagreement]:
    found: list[Disagreement] = []
    for name in _runner_names(records.values()):
        reports = _of_runner(name, records)
        for report in reports[1:]:
            found.extend(
                Disagreement(
                    runner=name,
                    field=field,
                    rank=reports[0].ranks[0],
                    value=getattr(reports[0], field),
                    other_rank=report.ranks[0],
                    other_value=getattr(report, field),
                )
                for field in _differing(reports[0], report)
            )
    return found


def _runner_names(records: Iterable[RankRecord]) -> list[str]:
    names = dict.fromkeys(runner.report.runner for r in records for runner in r.runners)
    return sorted(names, key=lambda name: (name != "target", name))


def _of_runner(name: str, records: Mapping[int, RankRecord]) -> list[RunnerReport]:
    """This runner's reports, those with kernels first: they speak for the runner.

    A pipeline stage without linear layers builds none: "no backend here", not disagreement, so
    its ranks take over the kernels of the stage that has some.
    """
    placed = [
        (record.identity.pp, runner.report)
        for _rank, record in sorted(records.items())
        for runner in record.runners
        if runner.report.runner == name
    ]
    building = {stage for stage, report in placed if report.kernels is not None}
    spokesman = next((report for _, report in placed if report.kernels is not None), None)
    if spokesman is None:
        return [report for _, report in placed]
    adopted = (
        report if stage in building else _without_backend(report, spokesman)
        for stage, report in placed
    )
    return sorted(adopted, key=lambda report: report.kernels is None)


def _without_backend(report: RunnerReport, spokesman: RunnerReport) -> RunnerReport:
    return msgspec.structs.replace(
        report,
        kernels=spokesman.kernels,
        agrees=spokesman.agrees,
        differences=spokesman.differences,
    )


def _differing(one: RunnerReport, other: RunnerReport) -> list[str]:
    return [f for f in COMPARED_FIELDS if getattr(one, f) != getattr(other, f)]


def _join(group: list[RunnerReport]) -> RunnerReport:
    ranks = tuple(sorted(rank for report in group for rank in report.ranks))
    valid = all(report.report_valid for report in group)
    return msgspec.structs.replace(group[0], ranks=ranks, report_valid=valid)
