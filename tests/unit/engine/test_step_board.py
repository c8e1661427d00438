"""Cancellation between steps: every rank leaves a request at the same boundary."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang_worker.engine.diffusion_steps import (
    GenerationCancelled,
    StepWatch,
    request_id,
    request_number,
    watch_updates,
    watched_steps,
)
from sglang_worker.engine.step_board import MARKS, Progress, StepBoard

STEPS = 6


@pytest.fixture
def board(tmp_path: Path) -> StepBoard:
    return StepBoard.create(tmp_path / "steps", ranks=2)


def test_a_second_process_sees_progress_and_cancellation(tmp_path: Path) -> None:
    worker = StepBoard.create(tmp_path / "steps", ranks=1)
    rank = StepBoard(tmp_path / "steps", ranks=1)
    assert worker.progress(7) is None
    assert rank.pass_boundary(0, 7, Progress(2, 9))
    assert worker.progress(7) == Progress(2, 9)
    before = worker.position()
    assert worker.position() == before
    assert rank.pass_boundary(0, 7, Progress(2, 9))
    assert worker.position() != before
    worker.cancel(7)
    assert not rank.pass_boundary(0, 7, Progress(3, 9))


def test_the_file_is_the_owners_alone(tmp_path: Path) -> None:
    StepBoard.create(tmp_path / "steps", ranks=1)
    assert (tmp_path / "steps").stat().st_mode & 0o077 == 0


def test_ranks_announce_themselves(board: StepBoard) -> None:
    assert board.ready_ranks() == 0
    board.announce(0)
    board.announce(1)
    assert board.ready_ranks() == 2


def test_a_cancellation_before_the_first_step_ends_the_request_there(board: StepBoard) -> None:
    board.cancel(3)
    assert not board.pass_boundary(0, 3, Progress(0, 5))


def test_a_cancellation_leaves_other_requests_alone(board: StepBoard) -> None:
    board.cancel(3)
    assert board.pass_boundary(0, 4, Progress(0, 5))
    # The same place on the board, a later request.
    assert board.pass_boundary(0, 3 + MARKS, Progress(0, 5))


def test_a_cancellation_after_the_last_step_is_never_met(board: StepBoard) -> None:
    for done in range(STEPS + 1):
        assert board.pass_boundary(0, 1, Progress(done, STEPS))
    board.cancel(1)
    assert board.pass_boundary(0, 2, Progress(0, STEPS))


@settings(max_examples=200, deadline=None)
@given(turns=st.lists(st.integers(0, 2), min_size=1, max_size=40), when=st.integers(0, 39))
def test_ranks_in_any_order_leave_at_the_same_boundary(
    tmp_path_factory: pytest.TempPathFactory, turns: list[int], when: int
) -> None:
    """Ranks run ahead of each other by any number of steps; ``when`` is the cancellation."""
    board = StepBoard.create(tmp_path_factory.mktemp("board") / "steps", ranks=3)
    passed, left = [0, 0, 0], [False, False, False]

    def step(rank: int) -> None:
        if left[rank] or passed[rank] > STEPS:
            return
        if board.pass_boundary(rank, 1, Progress(passed[rank], STEPS)):
            passed[rank] += 1
        else:
            left[rank] = True

    for position, rank in enumerate(turns):
        if position == when:
            board.cancel(1)
        step(rank)
    board.cancel(1) if when >= len(turns) else None
    for rank in (0, 1, 2) * (STEPS + 2):
        step(rank)
    assert len(set(passed)) == 1
    assert len(set(left)) == 1


def test_request_ids_lead_back_to_their_number_also_with_an_output_index() -> None:
    assert request_number([request_id(12)]) == 12
    assert request_number([request_id(12) + ":3"]) == 12
    assert request_number(["warmup", "generation-x", "generation-1x"]) is None
    assert request_number([]) is None


class Bar:
    """As much of tqdm as the denoising loops use."""

    def __init__(self) -> None:
        self.shown = 0

    def update(self, count: float | None = 1) -> bool:
        self.shown += int(count or 0)
        return True


def test_a_watched_bar_counts_and_raises_at_the_boundary(board: StepBoard) -> None:
    bar = Bar()
    watched = watch_updates(bar, StepWatch(board, 0, 1, STEPS))
    assert watched.update() is True
    watched.update(2)
    assert board.progress(1) == Progress(3, STEPS)
    board.cancel(1)
    with pytest.raises(GenerationCancelled, match="cancelled after step 4 of 6"):
        watched.update()
    assert bar.shown == 4


def test_a_watched_loop_counts_behind_every_item(board: StepBoard) -> None:
    watch = StepWatch(board, 0, 1, 3)
    seen = []
    with pytest.raises(GenerationCancelled, match="after step 2 of 3"):
        for item in watched_steps("abc", watch):
            seen.append(item)
            if item == "b":
                board.cancel(1)
    assert seen == ["a", "b"]
