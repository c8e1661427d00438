"""Attention of one request's queries over its keys. Imports only torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F


class Span(NamedTuple):
    """One request's queries: KV slots of everything up to and including the queries' own
    tokens, the number of queries, and the mask [queries, slots] (None: sees all)."""

    slots: torch.Tensor
    queries: int
    mask: torch.Tensor | None


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    logit_cap: float = 0.0,
) -> torch.Tensor:
    """``q`` [Lq, Hq, D], ``k`` [Lk, Hk, D], ``v`` [Lk, Hk, Dv] -> [Lq, Hq, Dv]; Hq % Hk == 0."""
    q, k, v = q.transpose(0, 1), k.transpose(0, 1).to(q.dtype), v.transpose(0, 1).to(q.dtype)
    if k.shape[0] != q.shape[0]:
        repeats = q.shape[0] // k.shape[0]
        k, v = k.repeat_interleave(repeats, 0), v.repeat_interleave(repeats, 0)
    if not logit_cap:
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=scale)
        return out[0].transpose(0, 1)
    scores = logit_cap * torch.tanh((q.float() @ k.float().transpose(1, 2)) * scale / logit_cap)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return (scores.softmax(-1) @ v.float()).to(q.dtype).transpose(0, 1)


def causal_mask(queries: int, total: int) -> torch.Tensor | None:
    """[queries, total] for queries that are the last of ``total`` tokens; None for one query."""
    if queries == 1:
        return None
    return torch.ones(queries, total, dtype=torch.bool).tril(total - queries)


def within_window(span: Span, window: int) -> torch.Tensor:
    """The span's mask restricted to keys at most ``window`` positions back."""
    total = span.slots.shape[0]
    position = torch.arange(total - span.queries, total).unsqueeze(1)
    near = torch.arange(total).unsqueeze(0) >= position - window
    return near if span.mask is None else near & span.mask
