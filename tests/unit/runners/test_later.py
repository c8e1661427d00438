from __future__ import annotations

import logging
from typing import Any

import pytest
from sglang_worker.runners.later import RunnerWatch, compare
from sglang_worker.runners.merge import merge
from sglang_worker.runners.report import SERVER_INFO_KEY, RunnerReport, to_builtins

from tests.unit.runners.builders import KERNELS, by_rank, rank_record, report, runner

STARTUP = by_rank(rank_record(0), rank_record(1))
SWAPPED = {**KERNELS, "decode": "FlashInferGDNKernel"}


def state(*reports: RunnerReport) -> dict[str, Any]:
    return {"max_total_num_tokens": 1, SERVER_INFO_KEY: to_builtins(reports)}


def watch(*, strict: bool = True) -> RunnerWatch:
    return RunnerWatch(STARTUP, merge(STARTUP), strict=strict)


def test_a_read_that_equals_the_startup_report_changes_nothing() -> None:
    assert compare(STARTUP, [state(report(0)), state(report(1))]) == ()
    observed = watch()
    assert observed.note([state(report(0))]) == ()
    assert observed.healthy
    assert observed.reports[0].report_valid


def test_a_kernel_that_changed_is_named_with_runner_rank_and_field() -> None:
    (change,) = compare(STARTUP, [state(report(1, kernels=SWAPPED))])
    assert (change.runner, change.rank, change.field) == ("target", 1, "kernels")
    assert "FlashInferGDNKernel" in change.sentence


def test_a_change_invalidates_the_report_and_fails_health() -> None:
    observed = watch()
    observed.note([state(report(0, kernels=SWAPPED))])
    assert not observed.healthy
    assert not observed.reports[0].report_valid


def test_a_change_is_logged_once_and_never_heals(caplog: pytest.LogCaptureFixture) -> None:
    observed = watch()
    with caplog.at_level(logging.ERROR):
        first = observed.note([state(report(0, kernels=SWAPPED))])
        again = observed.note([state(report(0, kernels=SWAPPED))])
        observed.note([state(report(0))])
    assert len(first) == 1
    assert again == ()
    assert len(caplog.records) == 1
    assert not observed.healthy


def test_without_strictness_a_change_marks_the_report_and_health_stays() -> None:
    observed = watch(strict=False)
    observed.note([state(report(0, kernels=SWAPPED))])
    assert observed.healthy
    assert not observed.reports[0].report_valid


def test_a_read_without_the_runner_list_is_a_change() -> None:
    observed = watch()
    observed.note([{"max_total_num_tokens": 1}])
    assert not observed.healthy
    assert not observed.reports[0].report_valid


def test_a_runner_that_appears_later_is_a_change() -> None:
    (change,) = compare(STARTUP, [state(report(0), report(0, runner="draft"))])
    assert (change.runner, change.field) == ("draft", "runner")


def test_a_runner_that_vanished_is_a_change() -> None:
    startup = by_rank(rank_record(0, runner(0), runner(0, runner="draft")))
    (change,) = compare(startup, [state(report(0))])
    assert (change.runner, change.rank, change.now) == ("draft", 0, None)


def test_ranks_of_other_nodes_are_left_to_their_own_worker() -> None:
    assert compare(STARTUP, [state(report(7, kernels=SWAPPED))]) == ()
