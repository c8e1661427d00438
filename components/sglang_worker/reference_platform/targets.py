"""Which function or class of SGLang is replaced by which of ours (SGLang 0.5.23, as read)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sglang_worker.reference_platform import (
    attention,
    cache_locs,
    collectives,
    conv,
    draft_attention,
    gating,
    kernels,
    norms,
    precision,
    renorm,
    rows,
    spec_tree,
    state_pool,
    transfer,
)

_OPS = "sglang.kernels.ops."
_TRITON_BACKEND = "sglang.srt.layers.attention.triton_backend."
_GROUP = "sglang.srt.distributed.parallel_state.GroupCoordinator."
_LINEAR_KERNELS = "sglang.srt.layers.attention.linear.kernels."


def _no_host_registration(*args: Any, **options: Any) -> None:
    """Host memory needs no registration with a CUDA driver."""


_SCATTER = "mamba.mamba_state_scatter_triton."
_PROJECTIONS = "attention.triton_gdn_fused_proj."

# Below sglang.kernels.ops.
_KERNEL_FUNCTIONS: dict[str, Callable[..., Any]] = {
    # Projections, gates and norms.
    _PROJECTIONS + "fused_qkvzba_split_reshape_cat": gating.split_interleaved_projection,
    _PROJECTIONS + "fused_qkvzba_split_reshape_cat_contiguous": gating.split_contiguous_projection,
    "attention.linear.fused_gdn_gating.fused_gdn_gating": gating.fused_gdn_gating,
    "attention.fla.fused_norm_gate.FusedRMSNormGated.forward": norms.gated_rms_norm_forward,
    "attention.fla.layernorm_gated.layernorm_fn": norms.grouped_norm,
    "elementwise.elementwise.fused_sigmoid_mul": gating.sigmoid_gated,
    "elementwise.elementwise.sigmoid_gate_mul_broadcast": gating.sigmoid_gated_rows,
    "elementwise.elementwise.fused_gate_sigmoid_mul": gating.shared_expert_gate,
    "elementwise.elementwise.fused_gate_sigmoid_mul_add": gating.add_gated_shared_expert,
    # Convolution and state pool.
    "mamba.causal_conv1d_triton.causal_conv1d_fn": conv.causal_conv1d_fn,
    "mamba.causal_conv1d_triton.causal_conv1d_update": conv.causal_conv1d_update,
    _SCATTER + "track_mamba_states_if_needed": state_pool.track_mamba_states_if_needed,
    _SCATTER + "track_mamba_states_all_layers": state_pool.track_mamba_states_all_layers,
    _SCATTER + "fused_mamba_state_scatter_with_mask": state_pool.scatter_accepted_states,
    _SCATTER + "fused_conv_window_scatter_with_mask": state_pool.scatter_accepted_states,
    _SCATTER + "fused_conv_window_scatter_multi": state_pool.scatter_accepted_windows,
    _SCATTER + "fused_commit_track_indices": state_pool.commit_and_track_steps,
    "kvcache.cache_move.copy_all_layer_kv_cache_func": state_pool.copy_kv_rows,
    "memory.memcpy_triton.memcpy_triton": rows.copy_rows,
}

REPLACEMENTS: dict[str, Callable[..., Any]] = {
    # Attention backends and linear-attention kernels, as classes.
    _TRITON_BACKEND + "TritonAttnBackend": attention.ReferenceAttnBackend,
    _TRITON_BACKEND + "TritonMultiStepDraftBackend": draft_attention.ReferenceMultiStepDraftBackend,
    _LINEAR_KERNELS + "gdn_triton.TritonGDNKernel": kernels.ReferenceGDNKernel,
    _LINEAR_KERNELS + "kda_triton.TritonKDAKernel": kernels.ReferenceKDAKernel,
    **{_OPS + name: function for name, function in _KERNEL_FUNCTIONS.items()},
    _GROUP + "all_gather_into_tensor": collectives.all_gather_into_tensor,
    _GROUP + "reduce_scatter_tensor": collectives.reduce_scatter_tensor,
    "sglang.srt.mem_cache.pool_host.common._cuda_host_register": _no_host_registration,
    "sglang.srt.mem_cache.allocation.assign_req_to_token_pool_func": (
        cache_locs.assign_req_to_token_pool
    ),
}

# Needed with a draft only. Older SGLang launches some of these as kernels, which no function can
# replace: there the platform offers no speculation (`hooks.speculation_fits`).
_DRAFT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "spec_tree.build_tree_kernel_efficient_func": spec_tree.build_tree,
    "spec_tree.verify_tree_greedy_func": spec_tree.verify_greedy,
    "cache_locs.assign_draft_cache_locs_contiguous_func": cache_locs.assign_draft_cache_locs,
    "cache_locs.fill_front_out_cache_loc_func": cache_locs.fill_front_out_cache_loc,
    "eagle.fill_bonus_tokens_func": cache_locs.fill_bonus_tokens,
    "eagle.fill_accept_out_cache_loc_func": cache_locs.fill_accept_out_cache_loc,
}
SPECULATIVE: dict[str, Callable[..., Any]] = {
    f"{_OPS}speculative.{name}": function for name, function in _DRAFT_FUNCTIONS.items()
}

# Where supported versions before 0.5.23 keep the same function.
RELOCATED: Mapping[str, str] = {
    _OPS + "attention.linear.fused_gdn_gating.fused_gdn_gating": (
        _OPS + "attention.fla.fused_gdn_gating.fused_gdn_gating"
    ),
    _OPS + "memory.memcpy_triton.memcpy_triton": "sglang.srt.layers.dp_attention.memcpy_triton",
    _OPS + "elementwise.elementwise.sigmoid_gate_mul_broadcast": (
        _OPS + "moe.triton_sigmoid_gate_mul.sigmoid_gate_mul_broadcast"
    ),
}

ADJUSTMENTS: dict[str, Callable[..., Any]] = {
    # Result adjusted by the function (HookRegistry's AFTER).
    "sglang.srt.configs.mamba_utils.mamba2_state_dtype": precision.window_type,
    "sglang.srt.disaggregation.utils.get_kv_class": transfer.manager_of_host_memory,
}

# SGLang binds these names to None where it has no kernel. HookRegistry must not see them: it
# would replace every None of every loaded module.
ABSENT: dict[tuple[str, str], Callable[..., Any]] = {
    (_OPS + "sampling.renorm", "top_k_renorm_prob"): renorm.top_k_renorm_prob,
    (_OPS + "sampling.renorm", "top_p_renorm_prob"): renorm.top_p_renorm_prob,
    (
        _OPS + "speculative.verify_sampling",
        "tree_speculative_sampling_target_only",
    ): spec_tree.verify_sampling,
}
