"""Which linear-attention backend a device kernel belongs to, by its recorded name.

Triton kernels carry their function's name. CuTe DSL kernels are called
``kernel_cutlass_<function>_…``; for methods the module and class follow. Names come from SGLang
0.5.23 and flashinfer 0.7.2; raw names are kept in the results, so a new name costs no device time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PATTERNS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (backend, re.compile(pattern, re.IGNORECASE))
    for backend, pattern in (
        (
            "flashinfer",
            r"gdn_decode_kernel_(small|big)_batch|gdn_verify_kernel_mtp|gdn_wide_vec_kernel"
            r"|gdn_decode_bf16state|flashinfer.*(delta_?rule|gdn)|delta_?rule_?(cp_?)?(dsl|sm\d)"
            r"|flat_?gdn|kernel_cutlass.*delta_?rule|kernel_cutlass.*gated_?delta",
        ),
        ("cutedsl", r"gdn_kernel_(small|large)_batch"),
        (
            "triton",
            r"chunk_gated_delta_rule_fwd|chunk_fwd_kernel_o|recompute_w_u_fwd"
            r"|fused_recurrent_gated_delta_rule|fused_sigmoid_gating_delta_rule_update",
        ),
    )
)
_SUSPECT = re.compile(r"delta|gdn|gated_rule|recurrent|chunk_", re.IGNORECASE)
# Preparation steps that every backend shares: cumulative sums, gates, norms.
_SHARED = re.compile(
    r"gdn_gating|gdn_prefill_qkv|cumsum|l2norm|qkv_split|qkvzba|causal_conv1d|layer_norm"
    r"|kkt_solve|prepare_chunk|rope",
    re.IGNORECASE,
)


def backend_of(name: str) -> str | None:
    for backend, pattern in _PATTERNS:
        if pattern.search(name):
            return backend
    return None


def backends_of(names: Iterable[str]) -> list[str]:
    """Backends seen among the kernels of one forward pass, sorted."""
    return sorted({backend for name in names if (backend := backend_of(name)) is not None})


def suspects_of(names: Iterable[str]) -> list[str]:
    """Names that sound like linear attention and are in no table: for the reader to judge."""
    return sorted(
        {n for n in names if _SUSPECT.search(n) and not _SHARED.search(n) and not backend_of(n)}
    )
