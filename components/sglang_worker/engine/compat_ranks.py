"""SGLang's layout of ranks over nodes (0.5.20 to 0.5.23), read in the worker's process."""

from __future__ import annotations

from typing import Any

from sglang_worker.engine import compat
from sglang_worker.engine.dp_ranks import NodeShare


def node_share(server_args: Any) -> NodeShare:
    """Call it once SGLang's launch has published its configuration."""
    from sglang.srt.entrypoints.engine import _calculate_rank_ranges

    args = compat.resolved(server_args)
    pipeline, tensor, *_ = _calculate_rank_ranges(int(args.node_rank or 0))
    groups, shared = compat.dp_layout(server_args)
    return NodeShare(
        pipeline=pipeline,
        tensor=tensor,
        tp_size=int(args.tp_size),
        pp_size=int(args.pp_size or 1),
        groups=groups,
        shared=shared,
    )


def node_rank(server_args: Any) -> int:
    return int(compat.resolved(server_args).node_rank or 0)


def nodes(server_args: Any) -> int:
    return int(compat.resolved(server_args).nnodes or 1)


def group_address(server_args: Any) -> str | None:
    """``host:port`` that all nodes of one engine share, its host resolved; None on one node.

    Raises ValueError when it names no host that resolves.
    """
    args = compat.resolved(server_args)
    if int(args.nnodes or 1) <= 1 or not args.dist_init_addr:
        return None
    from sglang.srt.utils.network import NetworkAddress

    try:
        address: str = NetworkAddress.parse(str(args.dist_init_addr).strip()).resolved().to_tcp()
    except OSError as failure:
        raise ValueError(f"--dist-init-addr {args.dist_init_addr}: {failure}") from failure
    return address.removeprefix("tcp://")
