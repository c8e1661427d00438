"""Straightforward step-by-step forms of the kernels, written from their definitions."""

from __future__ import annotations

import torch


def delta_rule_by_steps(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """q, k [T, H, K], v [T, H, V], g [T, H, 1 or K], beta [T, H], state [H, V, K].

    Returns the outputs [T, H, V] and the state after every token.
    """
    outputs, states = [], []
    for t in range(q.shape[0]):
        per_head, new = [], torch.empty_like(state)
        for h in range(q.shape[1]):
            decayed = state[h] * torch.exp(g[t, h])[None, :]
            error = v[t, h] - decayed @ k[t, h]
            new[h] = decayed + beta[t, h] * torch.outer(error, k[t, h])
            per_head.append(new[h] @ q[t, h])
        state = new
        states.append(state)
        outputs.append(torch.stack(per_head))
    return torch.stack(outputs), states


def convolution_by_steps(
    inputs: torch.Tensor, window: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """inputs [dim, T], window [dim, W-1] (newest last) -> silu outputs [dim, T] and new window."""
    outputs = []
    for t in range(inputs.shape[1]):
        seen = torch.cat([window, inputs[:, t : t + 1]], dim=1)
        y = (seen * weight).sum(1)
        y = y if bias is None else y + bias
        outputs.append(y * torch.sigmoid(y))
        window = seen[:, 1:]
    return torch.stack(outputs, dim=1), window


def random_delta_inputs(
    tokens: int, channels: bool, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v, g, beta for 3 heads, K = 5 and V = 4; ``channels``: KDA's decay per channel."""
    torch.manual_seed(seed)
    heads, key_dim, value_dim = 3, 5, 4
    k = torch.nn.functional.normalize(torch.randn(tokens, heads, key_dim), dim=-1)
    q = torch.nn.functional.normalize(torch.randn(tokens, heads, key_dim), dim=-1)
    v = torch.randn(tokens, heads, value_dim)
    g = -torch.rand(tokens, heads, key_dim if channels else 1) * 2
    beta = torch.rand(tokens, heads)
    return q, k, v, g, beta
