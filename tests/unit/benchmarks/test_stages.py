"""Groups of rows start when the one before has registered; rows here start nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from benchmarks.gpu_rows.served import Rows
from benchmarks.tensor_parallel.stages import Stage, Stages, limit_s


def run(groups: str, row: Any, total_s: float = 1000.0) -> tuple[Rows, list[list[str]]]:
    """The rows, and the names that each note had."""
    notes: list[list[str]] = []

    def note(rows: Rows) -> Rows:
        notes.append(list(rows))
        return rows

    return Stages(row, note).run(groups, total_s, most_s=140.0), notes


def test_the_next_group_starts_while_a_registered_row_is_still_asked() -> None:
    later_has_started = threading.Event()

    def row(name: str, stage: Stage) -> dict[str, Any]:
        if name == "first":
            stage.over()
            assert later_has_started.wait(30)
        else:
            later_has_started.set()
        return {"failed": None}

    rows, notes = run("first,later", row)
    assert all(found["failed"] is None for found in rows.values())
    assert sorted(notes[-1]) == ["first", "later"]
    assert [len(names) for names in notes] == [1, 2]


def test_a_row_that_raises_is_written_down_and_the_next_group_runs() -> None:
    def row(name: str, stage: Stage) -> dict[str, Any]:
        if name == "breaks":
            raise AssertionError("left processes behind")
        return {"failed": None}

    rows, _ = run("breaks,later", row)
    assert "left processes behind" in rows["breaks"]["failed"]
    assert rows["later"]["failed"] is None


def test_a_group_without_time_is_not_started() -> None:
    rows, _ = run("a", lambda name, stage: {"failed": None}, total_s=50.0)
    assert "not started" in rows["a"]["failed"]


@pytest.mark.parametrize(
    ("left_s", "groups_after", "limit"), [(320, 2, 140), (180, 1, 75), (600, 0, 140), (50, 0, 5)]
)
def test_a_group_leaves_time_to_those_after_it(
    left_s: float, groups_after: int, limit: float
) -> None:
    assert limit_s(left_s, groups_after, 140) == limit
