"""What the platform fills in where the operator set nothing. A user's flag always wins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_RANKS = 64
ATTENTION_BACKEND = "triton"
SPECULATIVE_ALGORITHMS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})

# By ServerArgs field. The pools are small on purpose: their default sizes follow the machine's
# memory and cost seconds and gigabytes that a demo model never uses.
ENGINE_DEFAULTS: Mapping[str, Any] = {
    "device": "cpu",
    "attention_backend": ATTENTION_BACKEND,
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 32768,
    "max_running_requests": 16,
    "max_mamba_cache_size": 64,
    "lora_backend": "torch_native",
    # Its package brings every library along; SGLang's own default, mooncake, wants the system's.
    "disaggregation_transfer_backend": "nixl",
    # An idle scheduler would otherwise poll, which takes a whole core.
    "sleep_on_idle": True,
}

# Must be in the environment before torch is loaded. On two cores one thread per process with a
# passive wait is more than ten times faster than torch's default of spinning thread pools.
PROCESS_ENVIRONMENT: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TORCHDYNAMO_DISABLE": "1",
    # SGLang wants a NUMA node per rank unless cores are listed for each. Nothing here binds
    # threads, so any entry does; without them tp or dp above 1 fails on a one-node machine.
    "SGLANG_CPU_OMP_THREADS_BIND": "|".join(["all"] * MAX_RANKS),
}


def engine_defaults(explicit: Mapping[str, Any]) -> dict[str, Any]:
    """ServerArgs fields to add to what the operator set; never one that is in ``explicit``."""
    return {name: value for name, value in ENGINE_DEFAULTS.items() if name not in explicit}


def process_environment() -> Mapping[str, str]:
    """Variables to set, unless already set, before torch is imported."""
    return PROCESS_ENVIRONMENT


def fill_unset(server_args: Any) -> None:
    """The same defaults for engines that other programs start, where SGLang left a field unset.

    By then SGLang has filled in ``intel_amx`` for the CPU; those kernels do not exist here.
    """
    from sglang_worker.reference_platform import older

    for name, value in ENGINE_DEFAULTS.items():
        if getattr(server_args, name, value) in (None, "intel_amx"):
            setattr(server_args, name, value)
    for name, value in older.engine_defaults().items():
        setattr(server_args, name, value)
    if server_args.dtype == "auto":
        from sglang_worker.reference_platform.precision import checkpoint_type

        named = checkpoint_type(server_args.model_path)
        if named is not None:
            server_args.dtype = named
