"""What SGLang's schedulers publish for others: KV events, loads, forward-pass metrics.

Read in SGLang 0.5.20 to 0.5.23: ``disaggregation/kv_events.py``, ``managers/load_snapshot.py``,
``managers/scheduler_components/{kv_events_publisher,metrics_reporter}.py``,
``observability/forward_pass_metrics.py``.
"""

from __future__ import annotations

from typing import Any

import msgspec


class RankLoad(msgspec.Struct, frozen=True):
    """One data-parallel rank as its scheduler saw it at ``at_s`` (seconds since the epoch).

    ``used_tokens``: KV cache slots held by requests, without what the prefix cache could give
    back at once. ``total_tokens``: slots of the rank; 0 until its scheduler has written.
    """

    dp_rank: int
    used_tokens: int
    total_tokens: int
    running: int
    waiting: int
    at_s: float
    # Share of prompt tokens that the prefix cache had, at the last prefill; None: not said.
    hit_ratio: float | None = None


def event_endpoint(base: str, dp_rank: int) -> str | None:
    """Where the publisher of ``dp_rank`` binds when rank 0's binds ``base``."""
    from sglang.srt.disaggregation.kv_events import ZmqEventPublisher

    endpoint: str | None = ZmqEventPublisher.offset_endpoint_port(base, dp_rank)
    return endpoint


def has_loads(tokenizer_manager: Any) -> bool:
    """Whether this SGLang keeps its ranks' loads where the tokenizer manager can read them."""
    return getattr(tokenizer_manager, "load_snapshot_reader", None) is not None


def read_loads(tokenizer_manager: Any) -> list[RankLoad]:
    """The loads of all ranks, of other nodes too; a read of shared memory, tens of microseconds.

    A rank whose scheduler has not published yet is left out.
    """
    return [
        RankLoad(
            dp_rank=int(load.dp_rank),
            used_tokens=int(load.num_used_tokens),
            total_tokens=int(load.max_total_num_tokens),
            running=int(load.num_running_reqs),
            waiting=int(load.num_waiting_reqs),
            at_s=float(load.timestamp),
            hit_ratio=getattr(load, "cache_hit_rate", None),
        )
        for load in tokenizer_manager.load_snapshot_reader.read_all()
        if load.max_total_num_tokens
    ]
