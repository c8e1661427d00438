"""The fail-closed checks over the ranks' records. Pure: records in, sentences out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from sglang_worker.runners import merge, parity
from sglang_worker.runners.families import Family
from sglang_worker.runners.records import RankRecord
from sglang_worker.runners.report import RunnerReport


class Failure(msgspec.Struct, frozen=True):
    """One failed check. `runner` and `ranks` say whose report is in doubt (None: all)."""

    sentence: str
    runner: str | None = None
    ranks: tuple[int, ...] = ()


class Findings(msgspec.Struct, frozen=True):
    failures: tuple[Failure, ...] = ()
    warnings: tuple[str, ...] = ()


def check(records: Mapping[int, RankRecord], expected: Iterable[int]) -> Findings:
    """All checks; `expected` are the ranks that this node launched."""
    verdicts = {rank: parity.check_launched(record) for rank, record in sorted(records.items())}
    failures = [
        *_missing(records, expected),
        *_told(records),
        *_unstamped(records),
        *_disagreeing(records),
        *(
            Failure(sentence, ranks=(rank,))
            for rank, verdict in verdicts.items()
            for sentence in verdict.errors
        ),
    ]
    warnings = [sentence for verdict in verdicts.values() for sentence in verdict.warnings]
    return Findings(tuple(failures), tuple(warnings))


def _missing(records: Mapping[int, RankRecord], expected: Iterable[int]) -> Iterator[Failure]:
    for rank in expected:
        record = records.get(rank)
        if record is None:
            yield Failure(f"rank {rank} handed over no runner report", ranks=(rank,))
        elif not record.runners and not record.errors:
            yield Failure(f"rank {rank}: the runner report names no runner", ranks=(rank,))


def _told(records: Mapping[int, RankRecord]) -> Iterator[Failure]:
    for rank, record in sorted(records.items()):
        for error in record.errors:
            yield Failure(f"rank {rank}: {error}", ranks=(rank,))


def _unstamped(records: Mapping[int, RankRecord]) -> Iterator[Failure]:
    for rank, record in sorted(records.items()):
        for runner in record.runners:
            report = runner.report
            if report.kernels is None or report.stamp is not None:
                continue
            if report.family == Family.SHORT_CONV.value:
                continue  # SGLang builds Inkling's before it stamps
            yield Failure(
                f"runner {report.runner}, rank {rank}: {runner.linear_backend} was built, yet "
                "field stamp is missing",
                report.runner,
                (rank,),
            )


def _disagreeing(records: Mapping[int, RankRecord]) -> Iterator[Failure]:
    for found in merge.disagreements(records):
        yield Failure(found.sentence, found.runner, (found.rank, found.other_rank))


def mark(reports: Iterable[RunnerReport], failures: Iterable[Failure]) -> tuple[RunnerReport, ...]:
    """The reports, `report_valid` false where a failure touches runner and rank."""
    touched = tuple(failures)
    return tuple(
        msgspec.structs.replace(
            report, report_valid=report.report_valid and not any(_hits(f, report) for f in touched)
        )
        for report in reports
    )


def _hits(failure: Failure, report: RunnerReport) -> bool:
    if failure.runner is not None and failure.runner != report.runner:
        return False
    absent = not any(rank in report.ranks for rank in failure.ranks)
    # A rank that reported nothing makes every runner's report incomplete.
    return not absent or failure.runner is None
