"""Loads: tokens in blocks, which of them are told, and what a failing read does."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from sglang_worker.observability.load.blocks import RESEND_S, LoadFilter, blocks_of
from sglang_worker.observability.load.publisher import LoadPublisher


@pytest.mark.parametrize(
    ("tokens", "page", "blocks"), [(0, 16, 0), (1, 16, 1), (16, 16, 1), (17, 16, 2), (5, 1, 5)]
)
def test_a_page_in_use_counts_whole(tokens: int, page: int, blocks: int) -> None:
    assert blocks_of(tokens, page) == blocks


def test_a_change_is_told_at_once_and_the_same_again_after_a_while() -> None:
    told = LoadFilter()
    assert told.is_due(0, 5, now_s=0.0)
    assert not told.is_due(0, 5, now_s=RESEND_S / 2)
    assert told.is_due(0, 6, now_s=RESEND_S / 2)
    assert told.is_due(1, 6, now_s=RESEND_S / 2), "ranks are told apart"
    assert told.is_due(0, 6, now_s=2 * RESEND_S)


class Snapshot(msgspec.Struct):
    """The fields of SGLang's LoadSnapshot that are read."""

    dp_rank: int
    num_used_tokens: int = 0
    max_total_num_tokens: int = 1000
    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    timestamp: float = 0.0


class Reader:
    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def read_all(self) -> list[Snapshot]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return list(answer)


class Manager:
    def __init__(self, *answers: Any) -> None:
        self.load_snapshot_reader = Reader(*answers)


def publisher(*answers: Any) -> LoadPublisher:
    return LoadPublisher(None, Manager(*answers), 16, clock=lambda: 0.0)


def test_every_rank_that_has_published_is_told_in_blocks() -> None:
    told: list[tuple[int, int]] = []
    loads = publisher([Snapshot(0, 17), Snapshot(1, 0), Snapshot(2, max_total_num_tokens=0)])
    loads.tell(lambda rank, blocks: told.append((rank, blocks)))
    assert told == [(0, 2), (1, 0)]
    assert loads.latest[0].used_tokens == 17


def test_a_read_that_fails_is_logged_once_and_then_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[int, int]] = []
    loads = publisher(OSError("gone"), OSError("gone"), [Snapshot(0, 1)], OSError("gone"))
    with caplog.at_level(logging.ERROR):
        for _ in range(4):
            loads.tell(lambda rank, blocks: told.append((rank, blocks)))
    assert told == [(0, 1)]
    assert len(caplog.records) == 2
