"""Collectives of attention data parallelism over gloo.

SGLang registers their custom ops for accelerators only, and picks torch.distributed directly only
for its own CPU engine, which this platform is not. Each function is a method of
``GroupCoordinator``; ``output`` is written in place.
"""

from __future__ import annotations

from typing import Any

import torch


def all_gather_into_tensor(group: Any, output: torch.Tensor, input: torch.Tensor) -> None:
    """``output``: the ranks' ``input``, one after another along the first dimension."""
    shares = list(output.view(-1).chunk(group.world_size))
    torch.distributed.all_gather(shares, input.reshape(-1), group=group.device_group)


def reduce_scatter_tensor(group: Any, output: torch.Tensor, input: torch.Tensor) -> None:
    """``output``: this rank's share of the sum of all ranks' ``input``, in order of the ranks."""
    total = input.clone()
    torch.distributed.all_reduce(total, group=group.device_group)
    output.copy_(total.view(-1).chunk(group.world_size)[group.rank_in_group].view_as(output))
