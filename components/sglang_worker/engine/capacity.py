"""What a started engine can hold, in the terms of Dynamo's router."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.engine import compat


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """Counts are per data-parallel rank; None: the engine did not say."""

    kv_block_tokens: int
    total_kv_blocks: int | None = None
    max_running_requests: int | None = None
    max_batched_tokens: int | None = None
    dp_ranks: int = 1
    # EAGLE-like speculation keys the prefix cache by token pairs, and the router must as well.
    bigram_keys: bool = False
    speculation: Mapping[str, Any] | None = None


def kv_block_tokens(args: Any) -> int:
    """Tokens per block of the router: with decode context parallelism SGLang's cache works in
    wider pages. ``args`` are the effective server arguments."""
    return int(args.page_size or 1) * int(getattr(args, "dcp_size", 1) or 1)


def read_capacity(engine: Any) -> Capacity:
    args = compat.resolved(engine.server_args)
    scheduler: Mapping[str, Any] = engine._scheduler_init_result.scheduler_infos[0]
    page_tokens = int(args.page_size or 1)
    pool_tokens = scheduler.get("max_total_num_tokens")
    dp_ranks, shares_one_group = compat.dp_layout(engine.server_args)
    running = args.max_running_requests
    if running is not None and shares_one_group:
        running //= dp_ranks
    return Capacity(
        kv_block_tokens=kv_block_tokens(args),
        total_kv_blocks=-(-pool_tokens // page_tokens) if pool_tokens else None,
        max_running_requests=running,
        max_batched_tokens=args.max_prefill_tokens or pool_tokens,
        dp_ranks=dp_ranks,
        bigram_keys=_is_eagle(args.speculative_algorithm),
        speculation=_speculation(args),
    )


def model_source(engine: Any) -> str:
    """Where the model's configuration lies: for a remote model the folder SGLang pulled it to."""
    config = engine.tokenizer_manager.model_config
    if getattr(config, "model_weights", None):
        return str(config.model_path)
    return str(compat.resolved(engine.server_args).model_path)


def _is_eagle(algorithm: str | None) -> bool:
    if not algorithm:
        return False
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

    return bool(SpeculativeAlgorithm.from_string(algorithm).is_eagle())


def _speculation(args: Any) -> dict[str, Any] | None:
    steps = args.speculative_num_steps or 0
    if not args.speculative_algorithm or steps <= 0:
        return None
    return {
        "nextn": int(steps),
        "source": "backend_config",
        "method": str(args.speculative_algorithm),
    }
