"""The row copy of attention data parallelism, and events that tell the time."""

from __future__ import annotations

import pytest
import torch
from sglang_worker.reference_platform.patches import TimedEvent
from sglang_worker.reference_platform.rows import copy_rows


def one(value: int) -> torch.Tensor:
    return torch.tensor([value])


def test_rows_are_put_at_the_offset_of_the_target() -> None:
    target, source = torch.zeros(5, 2), torch.arange(6.0).reshape(3, 2)
    copy_rows(target, source, 0, one(1), one(2), False)
    assert target.tolist() == [[0, 0], [0, 1], [2, 3], [0, 0], [0, 0]]


def test_rows_are_taken_from_the_offset_of_the_source() -> None:
    target, source = torch.zeros(3, 2), torch.arange(10.0).reshape(5, 2)
    copy_rows(target, source, 0, one(2), one(2), True)
    assert target.tolist() == [[4, 5], [6, 7], [0, 0]]


@pytest.mark.parametrize("in_source", [True, False])
def test_rows_that_do_not_fit_are_left_out(in_source: bool) -> None:
    target, source = torch.zeros(3), torch.ones(3)
    copy_rows(target, source, 0, one(2), one(9), in_source)
    assert int(target.sum()) == 1
    copy_rows(target, source, 0, one(3), one(1), in_source)
    assert int(target.sum()) == 1


def test_only_rows_are_copied() -> None:
    with pytest.raises(ValueError, match="dimension 0, not 1"):
        copy_rows(torch.zeros(2, 2), torch.ones(2, 2), 1, one(0), one(1), False)


def test_an_event_measures_the_time_between_two_records() -> None:
    first, second = TimedEvent(enable_timing=True), TimedEvent(enable_timing=True)
    first.record()
    second.record()
    assert first.query()
    assert first.elapsed_time(second) >= 0
    assert second.elapsed_time(first) <= 0
