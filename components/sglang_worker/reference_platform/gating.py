"""Gates and decays of linear attention, gates of attention and expert outputs.

Imports only torch.
Shapes: ``T`` tokens, ``HK``/``HV`` key/value heads, ``K``/``V`` head sizes. Decays are natural
logarithms in float32, as the delta rule takes them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

SOFTPLUS_LINEAR_ABOVE = 20.0


def softplus(x: torch.Tensor) -> torch.Tensor:
    """log(1 + exp(x)), the identity above 20, as SGLang's kernels compute it."""
    return F.softplus(x, beta=1.0, threshold=SOFTPLUS_LINEAR_ABOVE)


def l2_normalize(x: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """x / sqrt(sum(x^2) + eps) over the last dimension."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + eps)


def gdn_gate(
    a_log: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dt_bias: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """GDN's per-head log decay and write strength.

    ``a``, ``b`` [..., HV]; ``a_log``, ``dt_bias`` [HV]. Returns float32 ``g`` and ``beta`` of the
    same shape. beta is rounded through b's type, as the engine's kernel stores it.
    """
    g = -a_log.float().exp() * softplus(a.float() + dt_bias.float())
    return g, b.float().sigmoid().to(b.dtype).float()


def kda_gate(
    a: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    lower_bound: float | None,
    heads: int,
    head_dim: int,
) -> torch.Tensor:
    """KDA's per-channel log decay [T, HV, K] from ``a`` with T*HV*K elements.

    With a ``lower_bound`` (the "safe" gate) the decay is bounded: lower_bound * sigmoid(...).
    """
    x = a.float().reshape(-1, heads, head_dim) + dt_bias.float().reshape(heads, head_dim)
    rate = a_log.float().reshape(heads, 1).exp()
    if lower_bound is None:
        return -rate * softplus(x)
    return lower_bound * torch.sigmoid(rate * x)


def fused_gdn_gating(
    A_log: torch.Tensor,
    a: torch.Tensor,
    b: torch.Tensor,
    dt_bias: torch.Tensor,
    beta: float = 1.0,
    threshold: float = SOFTPLUS_LINEAR_ABOVE,
) -> tuple[torch.Tensor, torch.Tensor]:
    """SGLang's entry for `gdn_gate`: ``a``, ``b`` [T, HV] -> two [1, T, HV]."""
    if (beta, threshold) != (1.0, SOFTPLUS_LINEAR_ABOVE):
        raise ValueError(f"GDN gating with {beta=} {threshold=}: only 1.0 and 20.0 are supported")
    g, strength = gdn_gate(A_log, a, b, dt_bias)
    return g.unsqueeze(0), strength.unsqueeze(0)


def split_interleaved_projection(
    mixed_qkvz: torch.Tensor,
    mixed_ba: torch.Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Qwen3-Next's projection, grouped per key head: [q | k | v... | z...] and [b... | a...].

    Returns ``qkv`` [T, 2*HK*K + HV*V], ``z`` [T, HV, V], ``b`` [T, HV], ``a`` [T, HV].
    """
    tokens, per_key = mixed_qkvz.shape[0], num_heads_v // num_heads_qk
    grouped = mixed_qkvz.view(tokens, num_heads_qk, -1)
    q, k, v, z = grouped.split([head_qk, head_qk, per_key * head_v, per_key * head_v], dim=-1)
    qkv = torch.cat([part.reshape(tokens, -1) for part in (q, k, v)], dim=-1)
    b, a = mixed_ba.view(tokens, num_heads_qk, 2 * per_key).split(per_key, dim=-1)
    return (
        qkv,
        z.reshape(tokens, num_heads_v, head_v),
        b.reshape(tokens, num_heads_v),
        a.reshape(tokens, num_heads_v),
    )


def split_contiguous_projection(
    mixed_qkvz: torch.Tensor,
    mixed_ba: torch.Tensor,
    num_heads_qk: int,
    num_heads_v: int,
    head_qk: int,
    head_v: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Qwen3.5's projection: [all q | all k | all v | all z] and [all b | all a]."""
    tokens = mixed_qkvz.shape[0]
    qkv_dim = 2 * num_heads_qk * head_qk + num_heads_v * head_v
    return (
        mixed_qkvz[:, :qkv_dim].contiguous(),
        mixed_qkvz[:, qkv_dim:].reshape(tokens, num_heads_v, head_v),
        mixed_ba[:, :num_heads_v].contiguous(),
        mixed_ba[:, num_heads_v:].contiguous(),
    )


def shared_expert_gate(
    hidden_states: torch.Tensor, gate_weight: torch.Tensor, shared_output: torch.Tensor
) -> torch.Tensor:
    """sigmoid(hidden . weight) * shared_output, for ``hidden_states`` [T, D] and weight [D]."""
    gate = (hidden_states.float() @ gate_weight.float()).sigmoid().unsqueeze(-1)
    return (gate * shared_output.float()).to(shared_output.dtype)


def add_gated_shared_expert(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    shared_output: torch.Tensor,
    final_hidden_states: torch.Tensor,
) -> None:
    """In place: final_hidden_states += sigmoid(hidden . weight) * shared_output."""
    gate = (hidden_states.float() @ gate_weight.float()).sigmoid().unsqueeze(-1)
    final_hidden_states.copy_(gate * shared_output.float() + final_hidden_states.float())


def sigmoid_gated(
    attn_output: torch.Tensor, gate: torch.Tensor, inplace: bool = False, quant: bool = False
) -> torch.Tensor:
    """attn_output * sigmoid(gate); ``gate`` may be [T, heads, size] beside a flat output."""
    if quant:
        raise ValueError("quantized attention output does not run on the CPU reference platform")
    flat = gate.reshape(attn_output.shape)
    result = (attn_output.float() * flat.float().sigmoid()).to(attn_output.dtype)
    return attn_output.copy_(result) if inplace else result


def sigmoid_gated_rows(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    """x [T, D] * sigmoid(gate) [T, 1]."""
    return (x.float() * gate.float().sigmoid()).to(x.dtype)
