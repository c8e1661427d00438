"""Flags of engines that span nodes: what SGLang would only notice by waiting for ever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.errors import ConfigError


def check_nodes(explicit: Mapping[str, Any]) -> None:
    """``explicit``: SGLang's values by argparse destination. Raises ConfigError."""
    nodes = int(explicit.get("nnodes", 1))
    rank = int(explicit.get("node_rank") or 0)
    if nodes < 1:
        raise ConfigError(f"--nnodes {nodes} is refused; accepted: 1 or more")
    if not 0 <= rank < nodes:
        raise ConfigError(
            f"--node-rank {rank} is refused with --nnodes {nodes}; accepted: 0 to {nodes - 1}"
        )
    if nodes > 1 and not explicit.get("dist_init_addr"):
        raise ConfigError(
            f"--nnodes {nodes} needs --dist-init-addr HOST:PORT, an address of node 0 by which "
            "all nodes of the engine meet"
        )


def data_parallel_ranks(explicit: Mapping[str, Any]) -> int:
    """Ranks with a KV cache of their own: replicas times attention groups."""
    return int(explicit.get("dp_size") or 1) * int(explicit.get("attn_dp_size") or 1)


def shares_attention(explicit: Mapping[str, Any]) -> bool:
    """Whether data-parallel ranks are groups within one tensor-parallel engine."""
    return bool(explicit.get("enable_dp_attention")) or int(explicit.get("attn_dp_size") or 1) > 1
