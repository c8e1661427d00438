"""What the first node of an engine accepts from the others, and where they meet."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.boot.nodes import NodeBook, meeting_point
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.runners import records


def text_of(rank: int) -> str:
    record = records.RankRecord(records.RankIdentity(rank=rank, dp=0, pp=0, tp=rank))
    return records.encode(record).decode()


def report(node: Any = 1, found: Any = None) -> dict[str, Any]:
    return {"node_rank": node, "records": [text_of(2), text_of(3)] if found is None else found}


def test_the_first_node_waits_for_every_other_one() -> None:
    book = NodeBook(3)
    assert book.missing == [1, 2]
    assert book.take(report(2)) is None
    assert book.missing == [1]
    assert book.take(report(1, [text_of(1)])) is None
    assert book.missing == []
    assert {node: sorted(found) for node, found in book.records.items()} == {2: [2, 3], 1: [1]}


def test_a_node_that_reports_again_replaces_its_report() -> None:
    book = NodeBook(2)
    book.take(report(1))
    book.take(report(1, [text_of(1)]))
    assert sorted(book.records[1]) == [1]


@pytest.mark.parametrize(
    ("sent", "word"),
    [
        (None, "node_rank None"),
        ([], "node_rank None"),
        (report(0), "node_rank 0"),
        (report(2), "accepted: 1 to 1"),
        (report("1"), "node_rank '1'"),
        (report(True), "node_rank True"),
        (report(1, "x"), "records"),
        (report(1, [1]), "records"),
        (report(1, ["{"]), "records"),
        (report(1, ["{}"]), "records"),
    ],
)
def test_a_faulty_report_is_refused_with_its_reason(sent: Any, word: str) -> None:
    book = NodeBook(2)
    fault = book.take(sent)
    assert fault is not None
    assert word in fault
    assert book.missing == [1]


def test_engines_of_one_component_do_not_meet_each_other() -> None:
    config = WorkerConfig(
        worker_type=WorkerType.AGGREGATED,
        endpoint=EndpointAddress("dynamo", "backend", "generate"),
        engine=EngineFlags(),
    )
    one, other = (meeting_point(config, f"10.0.0.{host}:5000") for host in (1, 2))
    assert one != other
    assert one.path.startswith("dynamo.backend.engine_nodes_")
    assert one == meeting_point(config, "10.0.0.1:5000")
