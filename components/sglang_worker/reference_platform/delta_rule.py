"""The gated delta rule: step by step and in chunks. Imports only torch; all math in float32.

State ``S`` [HV, V, K] maps keys to values. One step decays it, writes the part of ``v`` that the
state does not already answer for ``k``, and reads with ``q``::

    S = S * exp(g);  S = S + beta * (v - S k) k^T;  o = S q

``g`` is one number per head (GDN, last dimension 1) or per key channel (KDA, last dimension K).
q is already scaled and q, k already normalised and repeated to HV heads.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from sglang_worker.reference_platform.gating import l2_normalize

CHUNK_TOKENS = 64


def delta_step(
    state: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One token for a batch. Returns the new state and the output [..., HV, V].

    ``state`` [..., HV, V, K], ``q``, ``k`` [..., HV, K], ``v`` [..., HV, V], ``g``
    [..., HV, 1 or K], ``beta`` [..., HV].
    """
    decayed = state * g.exp().unsqueeze(-2)
    known = (decayed @ k.unsqueeze(-1)).squeeze(-1)
    written = (v - known) * beta.unsqueeze(-1)
    state = torch.addcmul(decayed, written.unsqueeze(-1), k.unsqueeze(-2))
    return state, (state @ q.unsqueeze(-1)).squeeze(-1)


class ChunkedResult(NamedTuple):
    """``out`` [T, HV, V], the final state, and the states before each chunk."""

    out: torch.Tensor
    state: torch.Tensor
    starts: list[torch.Tensor]


def _pairwise(
    q: torch.Tensor, k: torch.Tensor, log_decay: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Decayed k.k and q.k products [HV, C, C] of one chunk, zero above the diagonal."""
    if log_decay.shape[-1] == 1:
        # exp only of the kept half: above the diagonal the difference is positive and unbounded.
        ratio = (log_decay - log_decay.transpose(1, 2)).tril().exp().tril()
        return (k @ k.transpose(1, 2)) * ratio, (q @ k.transpose(1, 2)) * ratio
    size = k.shape[1]
    upper = torch.ones(size, size, dtype=torch.bool).triu(1)[None, :, :, None]
    ratio = (log_decay.unsqueeze(2) - log_decay.unsqueeze(1)).masked_fill(upper, float("-inf"))
    decayed = k.unsqueeze(1) * ratio.exp()
    return (k.unsqueeze(2) * decayed).sum(-1), (q.unsqueeze(2) * decayed).sum(-1)


def delta_rule_chunked(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    state: torch.Tensor,
    chunk: int = CHUNK_TOKENS,
) -> ChunkedResult:
    """A whole sequence: ``q``, ``k`` [T, HV, K], ``v`` [T, HV, V], ``g`` [T, HV, 1 or K],
    ``beta`` [T, HV]. Within a chunk the written values solve one unit triangular system."""
    outs, starts = [], []
    for begin in range(0, q.shape[0], chunk):
        starts.append(state)
        part = slice(begin, begin + chunk)
        qc, kc, vc = (t[part].transpose(0, 1) for t in (q, k, v))
        log_decay = g[part].transpose(0, 1).cumsum(1)
        strength = beta[part].t().unsqueeze(-1)
        keys, queries = _pairwise(qc, kc, log_decay)
        system = (strength * keys).tril(-1)
        right = strength * (vc - (kc * log_decay.exp()) @ state.transpose(1, 2))
        written = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
        out = (qc * log_decay.exp()) @ state.transpose(1, 2) + queries @ written
        outs.append(out.transpose(0, 1))
        last = log_decay[:, -1:]
        state = state * last.exp() + written.transpose(1, 2) @ (kc * (last - log_decay).exp())
    return ChunkedResult(torch.cat(outs), state, starts)


def prepare_queries_and_keys(
    q: torch.Tensor, k: torch.Tensor, value_heads: int, scale: float | None, normalize: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """float32, normalised, repeated to the value heads, q scaled. ``q``, ``k`` [..., H, K]."""
    q, k = q.float(), k.float()
    if normalize:
        q, k = l2_normalize(q), l2_normalize(k)
    repeats = value_heads // k.shape[-2]
    if repeats > 1:
        q, k = q.repeat_interleave(repeats, -2), k.repeat_interleave(repeats, -2)
    return q * (k.shape[-1] ** -0.5 if scale is None else scale), k
