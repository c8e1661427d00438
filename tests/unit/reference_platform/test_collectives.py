"""The platform's collectives over gloo; each thread here is one rank."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import torch
from sglang_worker.reference_platform import collectives

RANKS = 3


class Group(msgspec.Struct, frozen=True):
    """What the functions read of SGLang's GroupCoordinator."""

    device_group: Any
    world_size: int
    rank_in_group: int


def on_every_rank(work: Callable[[Group], torch.Tensor]) -> list[torch.Tensor]:
    store = torch.distributed.HashStore()

    def run(rank: int) -> torch.Tensor:
        backend = torch.distributed.ProcessGroupGloo(store, rank, RANKS, timedelta(seconds=20))
        return work(Group(backend, RANKS, rank))

    with ThreadPoolExecutor(RANKS) as threads:
        return list(threads.map(run, range(RANKS)))


@pytest.mark.parametrize("width", [(), (4,), (2, 3)])
def test_every_rank_gets_the_rows_of_all_in_order(width: tuple[int, ...]) -> None:
    rows = [torch.full((2, *width), float(rank)) for rank in range(RANKS)]

    def work(group: Group) -> torch.Tensor:
        output = torch.empty((2 * RANKS, *width))
        collectives.all_gather_into_tensor(group, output, rows[group.rank_in_group])
        return output

    for output in on_every_rank(work):
        assert torch.equal(output, torch.cat(rows))


@pytest.mark.parametrize("width", [(), (4,), (2, 3)])
def test_every_rank_gets_its_share_of_the_sum(width: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    inputs = [torch.randint(9, (2 * RANKS, *width)).float() for _ in range(RANKS)]
    before = [one.clone() for one in inputs]

    def work(group: Group) -> torch.Tensor:
        output = torch.empty((2, *width))
        collectives.reduce_scatter_tensor(group, output, inputs[group.rank_in_group])
        return output

    outputs = on_every_rank(work)
    assert torch.equal(torch.cat(outputs), sum(before[1:], before[0]))
    assert all(map(torch.equal, inputs, before)), "the inputs are still needed"
