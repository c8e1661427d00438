"""SGLang before 0.5.23 (0.5.21 was tried): what it asks of an out-of-tree platform differently.

Such a release knows no platform capabilities. It asks by backend name whether Triton runs, wants
factories that later releases no longer call, and refuses overlap scheduling of linear-attention
models on an out-of-tree platform. Everything here is empty on a release that has them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from sglang_worker.errors import ConfigError


@functools.cache
def is_older() -> bool:
    from sglang.srt.platforms import interface

    return not hasattr(interface, "PlatformCapabilities")


def engine_defaults() -> Mapping[str, Any]:
    """ServerArgs fields. Without overlap SGLang resolves the state cache to ``no_buffer``."""
    return {"disable_overlap_schedule": True} if is_older() else {}


def refuse_speculation(server_args: Any) -> None:
    """Raises ConfigError: some draft steps there are Triton kernels, out of reach."""
    if is_older() and server_args.speculative_algorithm is not None:
        raise ConfigError(
            f"--speculative-algorithm {server_args.speculative_algorithm} does not run on the CPU "
            "reference platform with this SGLang version; use 0.5.23, or leave the flag out"
        )


def replacements() -> Mapping[str, Callable[..., Any]]:
    """Hook targets besides those of `targets`."""
    return {"sglang.srt.utils.common.support_triton": _no_triton} if is_older() else {}


def complete(platform: type) -> None:
    """Adds the factories; a later release takes a platform that has them for an outdated one."""
    if is_older():
        for name, factory in _FACTORIES.items():
            setattr(platform, name, factory)


def write_place(forward_batch: Any) -> Any:
    """Where this batch's keys and values go, in the form that the KV pool takes."""
    from sglang.srt.mem_cache.memory_pool import KVWriteLoc

    if is_older():
        return KVWriteLoc(forward_batch.out_cache_loc)
    return KVWriteLoc.for_batch(forward_batch, swa_loc=None)


def _no_triton(backend: str) -> bool:
    return False


def _mha_pool(platform: Any) -> type:
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool

    return MHATokenToKVPool


def _mla_pool(platform: Any) -> type:
    from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool

    return MLATokenToKVPool


def _paged_allocator(platform: Any) -> type:
    from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator

    return PagedTokenToKVPoolAllocator


_FACTORIES: Mapping[str, Callable[[Any], type]] = {
    "get_mha_kv_pool_cls": _mha_pool,
    "get_mla_kv_pool_cls": _mla_pool,
    "get_paged_allocator_cls": _paged_allocator,
}
