"""Moves of linear-attention states between pool slots. Imports only torch.

Arguments keep SGLang's names. Negative slots or steps mean "leave this request alone".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def _tracked_moves(
    cache_indices: torch.Tensor,
    mamba_track_mask: torch.Tensor,
    mamba_track_indices: torch.Tensor,
    batch_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    picked = mamba_track_mask[:batch_size].nonzero(as_tuple=True)[0]
    source, target = cache_indices[picked].long(), mamba_track_indices[picked].long()
    valid = (source >= 0) & (target >= 0)
    return source[valid], target[valid]


def track_mamba_states_if_needed(
    conv_states: torch.Tensor,
    ssm_states: torch.Tensor,
    cache_indices: torch.Tensor,
    mamba_track_mask: torch.Tensor,
    mamba_track_indices: torch.Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """One layer, pools [slots, …]: copies marked requests' states to their track slots."""
    source, target = _tracked_moves(
        cache_indices, mamba_track_mask, mamba_track_indices, batch_size
    )
    if source.numel():
        conv_states[target] = conv_states[source]
        ssm_states[target] = ssm_states[source]


def track_mamba_states_all_layers(
    conv_states_pool: torch.Tensor,
    ssm_states_pool: torch.Tensor,
    cache_indices: torch.Tensor,
    mamba_track_mask: torch.Tensor,
    mamba_track_indices: torch.Tensor,
    batch_size: int,
    check_freed_slots: bool = False,
) -> None:
    """The same for pools [layers, slots, …]."""
    source, target = _tracked_moves(
        cache_indices, mamba_track_mask, mamba_track_indices, batch_size
    )
    if source.numel():
        conv_states_pool[:, target] = conv_states_pool[:, source]
        ssm_states_pool[:, target] = ssm_states_pool[:, source]


def scatter_accepted_states(
    dst: torch.Tensor,
    src: torch.Tensor,
    dst_indices_raw: torch.Tensor,
    step_indices_raw: torch.Tensor,
    src_indices_raw: torch.Tensor | None = None,
) -> None:
    """dst[:, dst_index[i]] = src[:, row[i], step[i]] for every request with a valid step.

    ``dst`` [layers, slots, …], ``src`` [layers, rows, steps, …]; rows default to 0, 1, 2, …
    """
    step, target = step_indices_raw.long(), dst_indices_raw.long()
    rows = torch.arange(step.shape[0]) if src_indices_raw is None else src_indices_raw.long()
    valid = (step >= 0) & (step < src.shape[2])
    valid &= (target >= 0) & (target < dst.shape[1]) & (rows >= 0) & (rows < src.shape[1])
    if bool(valid.any()):
        dst[:, target[valid]] = src[:, rows[valid], step[valid]].to(dst.dtype)


def scatter_accepted_windows(
    pairs: Iterable[tuple[torch.Tensor, torch.Tensor]],
    dst_indices_raw: torch.Tensor,
    step_indices_raw: torch.Tensor,
    dst_indices2_raw: torch.Tensor | None = None,
    step_indices2_raw: torch.Tensor | None = None,
) -> None:
    """`scatter_accepted_states` over (dst, src) pairs, for the commit and the tracked slots."""
    for dst, src in pairs:
        scatter_accepted_states(dst, src, dst_indices_raw, step_indices_raw)
        if dst_indices2_raw is not None and step_indices2_raw is not None:
            scatter_accepted_states(dst, src, dst_indices2_raw, step_indices2_raw)


def commit_and_track_steps(
    accept_index: torch.Tensor,
    accept_lens: torch.Tensor,
    seq_lens: torch.Tensor | None,
    draft_token_num: int,
    mamba_track_interval: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Draft step to commit per request, and the step to track where a boundary was crossed.

    ``accept_index`` [B, depth] counts over all requests' draft tokens; ``accept_lens`` [B]
    includes the bonus token. A track step is -1 when the accepted tokens cross no multiple of
    ``mamba_track_interval``.
    """
    batch = torch.arange(accept_lens.shape[0])
    accepted, first = accept_lens.long(), batch * draft_token_num
    commit = accept_index[batch, accepted - 1].long() - first
    if seq_lens is None:
        return commit, None
    before = seq_lens.long()
    after = before + accepted
    boundary = after // mamba_track_interval * mamba_track_interval
    position = (boundary - before - 1).clamp(min=0, max=accept_index.shape[1] - 1)
    step = accept_index[batch, position].long() - first
    crossed = before // mamba_track_interval != after // mamba_track_interval
    return commit, torch.where(crossed, step, torch.full_like(step, -1))


def copy_kv_rows(
    data_ptrs: torch.Tensor,
    strides: torch.Tensor,
    tgt_loc: torch.Tensor,
    src_loc: torch.Tensor,
    num_locs: int,
    num_locs_upper: int,
    kv_copy_config: Any,
) -> None:
    """Copies KV rows inside every layer's buffer, given by address and row size in bytes.

    Sources are read before any target is written: the two may overlap.
    """
    import ctypes

    targets, sources = tgt_loc[:num_locs].tolist(), src_loc[:num_locs].tolist()
    for base, row_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = [ctypes.string_at(base + source * row_bytes, row_bytes) for source in sources]
        for target, row in zip(targets, rows, strict=True):
            ctypes.memmove(base + target * row_bytes, row, row_bytes)
