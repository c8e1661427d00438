"""Which data-parallel ranks publish from which node."""

from __future__ import annotations

import pytest
from sglang_worker.engine.dp_ranks import NodeShare


def leading(
    tensor: range,
    *,
    tp: int,
    groups: int,
    shared: bool,
    pipeline: range = range(1),
    pp: int = 1,
    stage: int = 0,
) -> tuple[int, ...]:
    share = NodeShare(
        pipeline=pipeline, tensor=tensor, tp_size=tp, pp_size=pp, groups=groups, shared=shared
    )
    return share.leading(stage)


def test_one_engine_has_one_rank() -> None:
    assert leading(range(1), tp=1, groups=1, shared=False) == (0,)


def test_replicas_all_live_on_the_one_node() -> None:
    assert leading(range(2), tp=2, groups=3, shared=False) == (0, 1, 2)


def test_tensor_parallelism_alone_leaves_the_follower_without_a_rank() -> None:
    assert leading(range(2), tp=4, groups=1, shared=False) == (0,)
    assert leading(range(2, 4), tp=4, groups=1, shared=False) == ()


@pytest.mark.parametrize(("node", "ranks"), [(0, (0, 1)), (1, (2, 3))])
def test_attention_groups_are_divided_over_the_nodes(node: int, ranks: tuple[int, ...]) -> None:
    assert leading(range(4 * node, 4 * node + 4), tp=8, groups=4, shared=True) == ranks


def test_a_group_that_spans_nodes_belongs_to_the_node_of_its_first_rank() -> None:
    """Two groups on four nodes: dividing ranks by nodes would find none anywhere."""
    found = [leading(range(2 * n, 2 * n + 2), tp=8, groups=2, shared=True) for n in range(4)]
    assert found == [(0,), (), (1,), ()]


def test_only_nodes_with_the_stage_publish() -> None:
    assert leading(range(2), tp=2, groups=1, shared=False, pipeline=range(1, 2), pp=2) == ()
    assert leading(range(2), tp=2, groups=1, shared=False, pipeline=range(1, 2), pp=2, stage=1) == (
        0,
    )
