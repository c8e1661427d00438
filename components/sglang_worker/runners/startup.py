"""What the worker's main calls around the engine's start: prepare, collect, verify, publish.

folder = startup.prepare(environ, strict=config.runner_report_strict)
startup.refuse(server_args)
engine = start_engine(..., scheduler_entry=process.run_scheduler_process)
watch = startup.check(engine, server_args, folder)   # raises StartupCheckError when strict
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, MutableMapping
from typing import Any

import msgspec

from sglang_worker.engine.compat import check_version
from sglang_worker.errors import StartupCheckError
from sglang_worker.runners import checks, compat, merge, refusals, table
from sglang_worker.runners.folder import ReportFolder, Settings
from sglang_worker.runners.later import RunnerWatch
from sglang_worker.runners.records import RankRecord
from sglang_worker.runners.report import SERVER_INFO_KEY, RunnerReport, to_builtins

logger = logging.getLogger(__name__)


class Collected(msgspec.Struct, frozen=True):
    """What this node's ranks handed over, and which ranks it launched."""

    records: Mapping[int, RankRecord]
    expected: tuple[int, ...]


def prepare(environ: MutableMapping[str, str], *, strict: bool) -> ReportFolder:
    """Makes the report folder and names it in `environ`, which the schedulers must inherit."""
    return ReportFolder.create(environ, Settings(strict=strict))


def refuse(server_args: Any) -> None:
    """Raises ConfigError for what cannot work, before anything is loaded."""
    check_version()
    refusals.refuse_linear_standalone_draft(server_args)


def collect(server_args: Any, folder: ReportFolder) -> Collected:
    """Every rank's record; call when SGLang's engine is up: each rank wrote before it was ready."""
    return Collected(folder.read(), tuple(compat.launched_ranks(server_args)))


def verify(collected: Collected, *, strict: bool) -> tuple[RunnerReport, ...]:
    """The merged reports. Raises StartupCheckError with every failure when strict; else logs them
    and marks the runners that they touch with `report_valid` false."""
    findings = checks.check(collected.records, collected.expected)
    for warning in findings.warnings:
        logger.warning("%s", warning)
    if findings.failures and strict:
        raise StartupCheckError(
            "; ".join(failure.sentence for failure in findings.failures)
            + " (--no-runner-report-strict starts anyway)"
        )
    for failure in findings.failures:
        logger.warning("%s (allowed by --no-runner-report-strict)", failure.sentence)
    return checks.mark(merge.merge(collected.records), findings.failures)


def check(engine: Any, server_args: Any, folder: ReportFolder) -> RunnerWatch:
    """Collect, verify, log and publish; the returned watch judges later reads."""
    strict = folder.settings.strict
    collected = collect(server_args, folder)
    reports = verify(collected, strict=strict)
    log(reports)
    publish(engine, reports)
    return RunnerWatch(collected.records, reports, strict=strict)


def join(engine: Any, watch: RunnerWatch, records: Mapping[int, RankRecord]) -> None:
    """Another node's records into ``watch``. Raises StartupCheckError as `verify` does."""
    known = {**watch.records, **records}
    reports = verify(Collected(known, tuple(known)), strict=watch.strict)
    watch.join(known, reports)
    log(reports)
    publish(engine, reports)


def log(reports: tuple[RunnerReport, ...]) -> None:
    """The startup table, and a warning line per difference."""
    for line in table.lines(reports):
        logger.info("%s", line)
    for line in table.difference_lines(reports):
        logger.warning("%s", line)


def publish(engine: Any, reports: tuple[RunnerReport, ...]) -> None:
    """Puts the list into the handshake, from where SGLang's `get_server_info` takes it."""
    infos = compat.scheduler_infos(engine)
    if infos:
        infos[0][SERVER_INFO_KEY] = to_builtins(reports)


def reason_of_death(folder: ReportFolder) -> str | None:
    """Why schedulers gave up, when their hooks know: for the message of a failed engine start."""
    errors = folder.errors()
    return "; ".join(errors) if errors else None
