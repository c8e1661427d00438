"""Top-k and top-p renormalisation of probability rows. Imports only torch."""

from __future__ import annotations

import torch


def top_k_renorm_prob(probs: torch.Tensor, top_ks: torch.Tensor | int) -> torch.Tensor:
    """Rows [R, V] with everything below the k-th largest probability removed, summing to 1."""
    vocabulary = probs.shape[-1]
    k = torch.as_tensor(top_ks).reshape(-1, 1).clamp(min=1, max=vocabulary).long()
    ordered = probs.sort(dim=-1, descending=True).values
    pivot = ordered.gather(-1, k.expand(probs.shape[0], 1) - 1)
    kept = torch.where(probs >= pivot, probs, torch.zeros_like(probs))
    return kept / kept.sum(-1, keepdim=True)


def top_p_renorm_prob(probs: torch.Tensor, top_ps: torch.Tensor | float) -> torch.Tensor:
    """Rows [R, V] reduced to the smallest set of largest probabilities that reaches p."""
    p = torch.as_tensor(top_ps, dtype=probs.dtype).reshape(-1, 1)
    ordered, order = probs.sort(dim=-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    kept = torch.where(before < p, ordered, torch.zeros_like(ordered))
    # A row keeps its largest token even at p = 0.
    kept[:, 0] = ordered[:, 0]
    result = torch.zeros_like(probs).scatter_(-1, order, kept)
    return result / result.sum(-1, keepdim=True)
