"""The linear-attention kernels that SGLang's dispatchers hold on this platform.

They replace the classes ``TritonGDNKernel`` and ``TritonKDAKernel``, so a runner report reads
`ReferenceGDNKernel` and `ReferenceKDAKernel` where another machine shows Triton's names: what the
stamp calls ``triton`` is not what runs here.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from sglang.srt.layers.attention.linear.kernels.kernel_backend import LinearAttnKernelBase

from sglang_worker.reference_platform import recurrence
from sglang_worker.reference_platform.gating import gdn_gate, kda_gate


def _refuse_replay(options: dict[str, Any]) -> None:
    if options.get("cache_ring") or options.get("replayssm_d") is not None:
        raise ValueError("--enable-linear-replayssm does not run on the CPU reference platform")


def _tracked(options: dict[str, Any]) -> recurrence.TrackedStates | None:
    states, chunks = options.get("track_state"), options.get("track_chunk_idx")
    if states is None or chunks is None:
        return None
    return recurrence.TrackedStates(states, chunks)


def _unpack(
    mixed_qkv: torch.Tensor, value_heads: int, value_dim: int, key_dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """[B, 2*H*K + HV*V] -> q, k [B, H, K], v [B, HV, V]."""
    batch = mixed_qkv.shape[0]
    values = value_heads * value_dim
    keys = (mixed_qkv.shape[1] - values) // 2
    q, k, v = mixed_qkv.split([keys, keys, values], dim=-1)
    return (
        q.reshape(batch, -1, key_dim),
        k.reshape(batch, -1, key_dim),
        v.reshape(batch, value_heads, value_dim),
    )


class _ReferenceKernel(LinearAttnKernelBase):
    """What GDN and KDA share; a subclass only turns its inputs into decay and strength."""

    supports_packed_decode = True
    supports_packed_decode_safe_gate = True
    supports_strided_target_verify_qkv = True
    # The fp32 snapshot keeps prefix-cache states exact where activations are bfloat16.
    supports_track_state_snapshot = True
    supports_fused_chain_verify = False

    @abstractmethod
    def _gates(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        a_log: torch.Tensor,
        dt_bias: torch.Tensor,
        heads: int,
        key_dim: int,
        lower_bound: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Log decay [T, HV, 1 or K] and strength [T, HV], both float32."""

    def packed_decode(
        self,
        mixed_qkv: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        A_log: torch.Tensor,
        dt_bias: torch.Tensor,
        scale: float,
        ssm_states: torch.Tensor,
        cache_indices: torch.Tensor,
        num_v_heads: int,
        head_v_dim: int,
        lower_bound: float | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """One token per request straight from the convolution: [B, dim] -> [1, B, HV, V]."""
        _refuse_replay(options)
        key_dim = ssm_states.shape[-1]
        q, k, v = _unpack(mixed_qkv, num_v_heads, head_v_dim, key_dim)
        g, beta = self._gates(a, b, A_log, dt_bias, num_v_heads, key_dim, lower_bound)
        out = recurrence.decode(q, k, v, g, beta, pool=ssm_states, slots=cache_indices, scale=scale)
        return out.unsqueeze(0)

    def decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        A_log: torch.Tensor,
        dt_bias: torch.Tensor,
        ssm_states: torch.Tensor,
        cache_indices: torch.Tensor,
        query_start_loc: torch.Tensor,
        lower_bound: float | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """Unpacked decode, [1, T, H, K]: any number of tokens per request, committed."""
        _refuse_replay(options)
        g, beta = self._gates(a, b, A_log, dt_bias, v.shape[2], k.shape[-1], lower_bound)
        return recurrence.verify(
            q,
            k,
            v,
            g,
            beta,
            pool=ssm_states,
            slots=cache_indices,
            query_start_loc=query_start_loc,
            commit=True,
        )

    def target_verify(
        self,
        A_log: torch.Tensor,
        dt_bias: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        ssm_states: torch.Tensor,
        cache_indices: torch.Tensor,
        query_start_loc: torch.Tensor,
        intermediate_states_buffer: torch.Tensor,
        intermediate_state_indices: torch.Tensor,
        cache_steps: int,
        retrieve_parent_token: torch.Tensor | None,
        lower_bound: float | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """Chain and tree verify: keeps every draft token's state, leaves the pool alone."""
        _refuse_replay(options)
        g, beta = self._gates(a, b, A_log, dt_bias, v.shape[2], k.shape[-1], lower_bound)
        return recurrence.verify(
            q,
            k,
            v,
            g,
            beta,
            pool=ssm_states,
            slots=cache_indices,
            query_start_loc=query_start_loc,
            snapshots=intermediate_states_buffer,
            snapshot_rows=intermediate_state_indices,
            parents=retrieve_parent_token,
        )


class ReferenceGDNKernel(_ReferenceKernel):
    """Gated Delta Network (Qwen3-Next, Qwen3.5): one decay per head."""

    def _gates(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        a_log: torch.Tensor,
        dt_bias: torch.Tensor,
        heads: int,
        key_dim: int,
        lower_bound: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        g, beta = gdn_gate(a_log, a.reshape(-1, heads), b.reshape(-1, heads), dt_bias)
        return g.unsqueeze(-1), beta

    def extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        *,
        ssm_states: torch.Tensor,
        cache_indices: torch.Tensor,
        query_start_loc: torch.Tensor,
        inplace_update: bool = True,
        **options: Any,
    ) -> tuple[torch.Tensor, None, torch.Tensor | None]:
        """Prefill with ``g``, ``beta`` [1, T, HV] already computed."""
        tracked = _tracked(options)
        out, starts = recurrence.prefill(
            q,
            k,
            v,
            g[0].unsqueeze(-1),
            beta[0],
            pool=ssm_states,
            slots=cache_indices,
            query_start_loc=query_start_loc,
            inplace=inplace_update,
            tracked=tracked,
        )
        return out, None, _stacked(starts) if tracked is None else None


class ReferenceKDAKernel(_ReferenceKernel):
    """Kimi Delta Attention (Kimi-Linear): one decay per key channel."""

    def _gates(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        a_log: torch.Tensor,
        dt_bias: torch.Tensor,
        heads: int,
        key_dim: int,
        lower_bound: float | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        decay = kda_gate(a, a_log, dt_bias, lower_bound, heads, key_dim)
        return decay, b.float().sigmoid().reshape(-1, heads)

    def extend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        g: torch.Tensor,
        beta: torch.Tensor,
        *,
        ssm_states: torch.Tensor,
        cache_indices: torch.Tensor,
        query_start_loc: torch.Tensor,
        A_log: torch.Tensor | None = None,
        dt_bias: torch.Tensor | None = None,
        lower_bound: float | None = None,
        beta_is_raw: bool = False,
        return_intermediate_states: bool = False,
        **options: Any,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """Prefill; ``g`` [1, T, HV(, *)K] is the raw gate input when ``A_log`` is given."""
        heads, key_dim = v.shape[2], k.shape[-1]
        if A_log is not None and dt_bias is not None:
            decay = kda_gate(g, A_log, dt_bias, lower_bound, heads, key_dim)
        else:
            decay = g.float().reshape(-1, heads, key_dim)
        strength = beta.float().sigmoid() if beta_is_raw else beta.float()
        tracked = _tracked(options)
        out, starts = recurrence.prefill(
            q,
            k,
            v,
            decay,
            strength.reshape(-1, heads),
            pool=ssm_states,
            slots=cache_indices,
            query_start_loc=query_start_loc,
            tracked=tracked,
        )
        if not return_intermediate_states:
            return out
        return out, _stacked(starts) if tracked is None else None


def _stacked(starts: list[torch.Tensor]) -> torch.Tensor | None:
    """[1, chunks, HV, V, K] as SGLang indexes it, or None without a chunk."""
    return torch.stack(starts).unsqueeze(0) if starts else None
