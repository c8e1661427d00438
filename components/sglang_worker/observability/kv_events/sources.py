"""Where the KV event streams of this node's ranks can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from sglang_worker.observability.kv_events.settings import KvEventSettings, split_tcp

# SGLang's own arithmetic: endpoint of rank 0 and a rank -> that rank's endpoint.
Offset = Callable[[str, int], str | None]


class KvSource(msgspec.Struct, frozen=True):
    """One rank's stream; ``block_tokens``: how many tokens a block of its events covers."""

    dp_rank: int
    endpoint: str
    topic: str
    block_tokens: int


def sources_of(
    settings: KvEventSettings, ranks: Iterable[int], block_tokens: int, offset: Offset
) -> tuple[KvSource, ...]:
    """SGLang binds one port per rank; a subscriber of the same host reaches it on loopback."""
    found = []
    for rank in ranks:
        bound = split_tcp(offset(settings.endpoint.text(), rank) or "")
        if bound is None:
            raise ValueError(f"SGLang gives rank {rank} no endpoint beside {settings.endpoint}")
        found.append(KvSource(rank, bound.reachable().text(), settings.topic, block_tokens))
    return tuple(found)
