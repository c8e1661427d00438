"""Arguments of `sgl.Engine` that all rows of bare engines have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Rows start side by side: each gets a range of ports of its own, below those that the kernel gives
# to connections.
FIRST_PORT, FIRST_NCCL_PORT, PORTS_PER_ROW = 21000, 26000, 50
DRY_OPTIONS: dict[str, Any] = {
    "attention_backend": "triton",
    "device": "cpu",
    "dtype": "float32",
    "disable_cuda_graph": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 4096,
    "max_running_requests": 4,
    "max_mamba_cache_size": 16,
    "context_length": 1024,
}
DEVICE_OPTIONS: dict[str, Any] = {
    "attention_backend": "triton",
    "dtype": "bfloat16",
    "mem_fraction_static": 0.8,
    "disable_prefill_cuda_graph": True,
}


def engine_options(
    model_path: str,
    index: int,
    row: Mapping[str, Any],
    *,
    dry_run: bool,
    device: Mapping[str, Any],
    **more: Any,
) -> dict[str, Any]:
    """``row``: what the row is about; ``device``: sizes that only a GPU gets; ``more``: the
    script's own. A dry run leaves out the kernels, of which the CPU platform has one kind."""
    options = {
        "model_path": model_path,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "sampling_backend": "pytorch",
        "grammar_backend": "none",
        "random_seed": 7,
        "port": FIRST_PORT + PORTS_PER_ROW * index,
        "nccl_port": FIRST_NCCL_PORT + PORTS_PER_ROW * index,
        **more,
        **(DRY_OPTIONS if dry_run else {**DEVICE_OPTIONS, **device}),
        **row,
    }
    if not dry_run:
        return options
    return {name: value for name, value in options.items() if not _chooses_kernels(name)}


def _chooses_kernels(name: str) -> bool:
    return name.startswith("linear_attn_") or name == "speculative_draft_attention_backend"
