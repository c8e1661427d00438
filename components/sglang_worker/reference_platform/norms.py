"""Norms with an output gate. Imports only torch; computes in float32."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def gated_rms_norm_forward(
    self: Any,
    x: torch.Tensor,
    g: torch.Tensor,
    residual: torch.Tensor | None = None,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
) -> torch.Tensor:
    """Method of SGLang's FusedRMSNormGated: rms_norm(x) * weight * act(g) in float32."""
    if residual is not None or prenorm:
        raise ValueError("gated RMS norm with a residual is not supported on the CPU platform")
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
    if self.weight is not None:
        y = y * self.weight.float()
    gate = g.float()
    gate = gate.sigmoid() if self.activation == "sigmoid" else F.silu(gate)
    return (y * gate).to(x.dtype)


def grouped_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    z: torch.Tensor | None = None,
    eps: float = 1e-6,
    group_size: int | None = None,
    norm_before_gate: bool = True,
    is_rms_norm: bool = False,
    activation: str = "swish",
) -> torch.Tensor:
    """Layer or RMS norm over groups of the last dimension, gated by ``z`` before or after.

    ``group_size`` None is one group. ``activation`` of the gate: swish, silu or sigmoid.
    """
    y = x.float()
    gate = None if z is None else _gate(z.float().reshape(x.shape), activation)
    if gate is not None and not norm_before_gate:
        y = y * gate
    groups = y.unflatten(-1, (-1, group_size or x.shape[-1]))
    if not is_rms_norm:
        groups = groups - groups.mean(-1, keepdim=True)
    groups = groups * torch.rsqrt(groups.square().mean(-1, keepdim=True) + eps)
    y = groups.flatten(-2) * weight.float()
    if bias is not None:
        y = y + bias.float()
    if gate is not None and norm_before_gate:
        y = y * gate
    return y.to(x.dtype)


def _gate(z: torch.Tensor, activation: str) -> torch.Tensor:
    return z.sigmoid() if activation == "sigmoid" else F.silu(z)
