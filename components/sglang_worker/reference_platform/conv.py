"""Causal depthwise convolution with a cached window. Imports only torch.

A slot of the state pool holds the last ``W - 1`` inputs per channel, ``[dim, W - 1]`` (newest
last). Slot numbers below zero mark padding: nothing is read or written for them.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from sglang_worker.reference_platform.token_tree import parents_of, path_to

_SILU = ("silu", "swish", True)


def _activate(y: torch.Tensor, bias: torch.Tensor | None, activation: Any) -> torch.Tensor:
    """``y`` [..., dim, T] in float32."""
    if bias is not None:
        y = y + bias.float().unsqueeze(-1)
    return F.silu(y) if activation in _SILU else y


def convolve_windows(
    windows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, activation: Any
) -> torch.Tensor:
    """``windows`` [..., dim, T, W] and ``weight`` [dim, W] -> float32 [..., dim, T]."""
    return _activate((windows.float() * weight.float().unsqueeze(1)).sum(-1), bias, activation)


def causal_conv1d_fn(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    conv_states: torch.Tensor,
    query_start_loc: torch.Tensor,
    seq_lens_cpu: Any = None,
    cache_indices: torch.Tensor | None = None,
    has_initial_state: torch.Tensor | None = None,
    activation: Any = "silu",
    pad_slot_id: int = -1,
    **_unused: Any,
) -> torch.Tensor:
    """Prefill over packed sequences: ``x`` [dim, tokens] -> the same shape; updates the pool.

    Sequence i is columns ``query_start_loc[i]:query_start_loc[i+1]`` and owns slot
    ``cache_indices[i]``; it continues the slot's window where ``has_initial_state[i]``.
    """
    bounds = query_start_loc.tolist()
    count, width = len(bounds) - 1, weight.shape[1]
    slots = list(range(count)) if cache_indices is None else cache_indices.tolist()
    resumed = [False] * count if has_initial_state is None else has_initial_state.tolist()
    kernel = weight.float().unsqueeze(1)
    out = torch.zeros_like(x)
    for i in range(count):
        start, end, slot = bounds[i], bounds[i + 1], slots[i]
        if end <= start or slot < 0 or slot == pad_slot_id:
            continue
        window = conv_states[slot, :, -(width - 1) :]
        before = window.to(x.dtype) if resumed[i] else torch.zeros_like(window, dtype=x.dtype)
        inputs = torch.cat([before, x[:, start:end]], dim=-1)
        y = F.conv1d(inputs.float().unsqueeze(0), kernel, groups=x.shape[0])[0]
        out[:, start:end] = _activate(y, bias, activation).to(x.dtype)
        conv_states[slot, :, -(width - 1) :] = inputs[:, -(width - 1) :].to(conv_states.dtype)
    return out


def _tree_columns(
    next_token: torch.Tensor,
    next_sibling: torch.Tensor,
    parent_out: torch.Tensor | None,
    width: int,
) -> torch.Tensor:
    """Columns of ``[window | tokens]`` that end at each tree node: [batch, T, W].

    Also writes the parents that target verify reads later (0 for the root).
    """
    rows = []
    for i, (children, siblings) in enumerate(
        zip(next_token.tolist(), next_sibling.tolist(), strict=True)
    ):
        parents = parents_of(children, siblings)
        if parent_out is not None:
            parent_out[i] = torch.tensor([max(p, 0) for p in parents], dtype=parent_out.dtype)
        offset = width - 1
        rows.append(
            [[c + offset for c in path_to(t, parents, width)] for t in range(len(children))]
        )
    return torch.tensor(rows, dtype=torch.long)


def causal_conv1d_update(
    x: torch.Tensor,
    conv_state: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: Any = None,
    cache_seqlens: torch.Tensor | None = None,
    conv_state_indices: torch.Tensor | None = None,
    num_accept_tokens: torch.Tensor | None = None,
    intermediate_conv_window: torch.Tensor | None = None,
    intermediate_state_indices: torch.Tensor | None = None,
    retrieve_next_token: torch.Tensor | None = None,
    retrieve_next_sibling: torch.Tensor | None = None,
    retrieve_parent_token: torch.Tensor | None = None,
    pad_slot_id: int = -1,
    **_unused: Any,
) -> torch.Tensor:
    """Decode (``x`` [batch, dim]) and target verify (``x`` [batch, dim, T]); updates the pool.

    In verify, the window after each draft token goes to ``intermediate_conv_window[row, t]`` so
    that the accepted one can be committed; with ``retrieve_*`` the tokens form a tree and a
    window follows the node's ancestors. The result keeps x's strides: callers view it.
    """
    if num_accept_tokens is not None or cache_seqlens is not None:
        raise ValueError("circular convolution windows are not supported on the CPU platform")
    flat = x.dim() == 2
    tokens = x.unsqueeze(-1) if flat else x
    batch, dim, steps = tokens.shape
    width = weight.shape[1]
    slots = torch.arange(batch) if conv_state_indices is None else conv_state_indices[:batch].long()
    inputs = torch.cat(
        [conv_state[slots.clamp(min=0)][:, :, -(width - 1) :].to(x.dtype), tokens], dim=-1
    )
    if retrieve_next_token is None or retrieve_next_sibling is None:
        windows = inputs.unfold(-1, width, 1)
    else:
        columns = _tree_columns(
            retrieve_next_token, retrieve_next_sibling, retrieve_parent_token, width
        )
        index = columns.view(batch, 1, -1).expand(batch, dim, -1)
        windows = inputs.gather(2, index).view(batch, dim, steps, width)
    y = convolve_windows(windows, weight, bias, activation)

    live = slots >= 0
    every_live = bool(live.all())
    if intermediate_conv_window is not None and intermediate_state_indices is not None:
        rows = intermediate_state_indices[:batch].long()
        kept = windows[..., 1:].permute(0, 2, 1, 3).to(intermediate_conv_window.dtype)
        if not every_live:
            rows, kept = rows[live], kept[live]
        for t in range(steps):
            intermediate_conv_window[rows, t] = kept[:, t]
    final = inputs[:, :, -(width - 1) :].to(conv_state.dtype)
    if every_live:
        conv_state[slots, :, -(width - 1) :] = final
    else:
        conv_state[slots[live], :, -(width - 1) :] = final[live]
    out = torch.empty_like(tokens).copy_(y)
    return out.squeeze(-1) if flat else out
