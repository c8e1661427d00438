"""Where draft and verified tokens live in the KV pool. Imports only torch.

``req_to_token`` [requests, max length] maps a request's token position to its KV slot. Arguments
keep SGLang's names.
"""

from __future__ import annotations

from typing import Any

import torch


def _spans(
    req_pool_indices: torch.Tensor, start_offset: torch.Tensor, end_offset: torch.Tensor
) -> list[tuple[int, int, int]]:
    return list(
        zip(req_pool_indices.tolist(), start_offset.tolist(), end_offset.tolist(), strict=False)
    )


def extend_cache_locs(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
    device: Any,
) -> torch.Tensor:
    """KV slots of positions ``start:end`` of every request, concatenated, int64."""
    parts = [
        req_to_token[row, start:end]
        for row, start, end in _spans(req_pool_indices, start_offset, end_offset)
    ]
    if not parts:
        return torch.empty(0, dtype=torch.int64)
    return torch.cat(parts).long()


def assign_req_to_token_pool(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    batch_size: int,
) -> None:
    """Writes consecutive pieces of ``out_cache_loc`` as the slots of positions ``start:end``."""
    taken = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        count = end - start
        req_to_token[row, start:end] = out_cache_loc[taken : taken + count].to(req_to_token.dtype)
        taken += count


def assign_draft_cache_locs(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    topk: int,
    num_cols: int,
    positions: torch.Tensor | None = None,
    mrope: torch.Tensor | None = None,
) -> None:
    """Fills each request's ``topk * num_cols`` draft slots, the ones right after its tokens."""
    width = topk * num_cols
    columns = seq_lens.long().unsqueeze(1) + torch.arange(width)
    slots = req_to_token[req_pool_indices.long().unsqueeze(1), columns]
    out_cache_loc[: slots.numel()] = slots.reshape(-1).to(out_cache_loc.dtype)
    if positions is None:
        return
    repeated = seq_lens.repeat_interleave(topk)
    positions.view(-1)[: repeated.numel()] = repeated.to(positions.dtype)
    if mrope is not None:
        mrope.view(3, -1)[:, : repeated.numel()] = repeated.to(mrope.dtype)


def fill_bonus_tokens(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
    batch_size: int,
) -> None:
    """The last accepted token of each request, from rows of ``accept_stride`` tokens."""
    last = torch.arange(batch_size) * accept_stride + accept_lens[:batch_size].long() - 1
    bonus_tokens[:batch_size] = accept_tokens.view(-1)[last].to(bonus_tokens.dtype)


def fill_accept_out_cache_loc(
    accept_index: torch.Tensor,
    out_cache_loc: torch.Tensor,
    accept_out_cache_loc: torch.Tensor,
    size: int,
) -> None:
    """Packs the slots of accepted draft tokens; -1 in ``accept_index`` marks "not accepted"."""
    index = accept_index.view(-1)[:size]
    slots = out_cache_loc[index[index > -1].long()]
    accept_out_cache_loc[: slots.numel()] = slots


def fill_front_out_cache_loc(
    num_front: torch.Tensor, out_cache_loc: torch.Tensor, front_out_cache_loc: torch.Tensor
) -> None:
    """Packs the first ``num_front[i]`` slots of each request's window of ``out_cache_loc``."""
    windows = out_cache_loc.view(num_front.numel(), -1)
    picked = torch.arange(windows.shape[1]) < num_front.unsqueeze(1)
    slots = windows[picked]
    front_out_cache_loc[: slots.numel()] = slots.to(front_out_cache_loc.dtype)
