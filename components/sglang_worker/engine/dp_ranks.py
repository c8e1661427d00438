"""Which data-parallel ranks live on which node."""

from __future__ import annotations

import msgspec


class NodeShare(msgspec.Struct, frozen=True, kw_only=True):
    """This node's part of the launch, as SGLang divides it.

    ``pipeline`` and ``tensor`` are the stages and tensor-parallel ranks started here, ``groups``
    the number of data-parallel ranks, ``shared`` whether they divide one tensor-parallel group
    (attention DP) instead of being replicas of it.
    """

    pipeline: range
    tensor: range
    tp_size: int
    pp_size: int
    groups: int
    shared: bool

    def leading(self, stage: int = 0) -> tuple[int, ...]:
        """Data-parallel ranks whose first scheduler of pipeline ``stage`` runs here.

        That scheduler alone publishes: KV events from stage 0, forward-pass metrics from the last.
        """
        if stage not in self.pipeline:
            return ()
        width = self.tp_size // self.groups if self.shared else 0
        return tuple(rank for rank in range(self.groups) if rank * width in self.tensor)
