"""The delta rule over SGLang's batches and state pool: prefill, decode, target verify.

Imports only torch. The pool is ``[slots, HV, V, K]``; a negative slot marks padding. GDN and KDA
differ only in how the decay was computed, so all three functions serve both.
"""

from __future__ import annotations

import itertools

import torch

from sglang_worker.reference_platform.delta_rule import (
    delta_rule_chunked,
    delta_step,
    prepare_queries_and_keys,
)


class TrackedStates:
    """Where a prefill leaves the state at one chunk boundary per sequence (prefix cache)."""

    def __init__(self, states: torch.Tensor, chunk_index: torch.Tensor) -> None:
        self._states = states
        self._chunks: list[int] = chunk_index.tolist()

    def record(self, sequence: int, starts: list[torch.Tensor], final: torch.Tensor) -> None:
        chunk = self._chunks[sequence]
        if chunk >= 0:
            self._states[sequence] = starts[chunk] if chunk < len(starts) else final


def prefill(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    pool: torch.Tensor,
    slots: torch.Tensor,
    query_start_loc: torch.Tensor,
    inplace: bool = True,
    tracked: TrackedStates | None = None,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Packed sequences: ``q``, ``k`` [1, T, H, K], ``v`` [1, T, HV, V], ``g`` [T, HV, 1 or K],
    ``beta`` [T, HV]. Returns [1, T, HV, V] in v's type and every chunk's first state."""
    queries, keys = prepare_queries_and_keys(q[0], k[0], v.shape[2], None, True)
    values, decay, strength = v[0].float(), g.float(), beta.float()
    bounds, where = query_start_loc.tolist(), slots.tolist()
    out = torch.zeros_like(values)
    chunk_starts: list[torch.Tensor] = []
    for i in range(len(bounds) - 1):
        part, slot = slice(bounds[i], bounds[i + 1]), where[i]
        if part.stop <= part.start:
            continue
        state = pool[slot].float() if slot >= 0 else values.new_zeros(pool.shape[1:])
        result = delta_rule_chunked(
            queries[part], keys[part], values[part], decay[part], strength[part], state
        )
        out[part] = result.out
        chunk_starts += result.starts
        if tracked is not None:
            tracked.record(i, result.starts, result.state)
        if inplace and slot >= 0:
            pool[slot] = result.state.to(pool.dtype)
    return out.unsqueeze(0).to(v.dtype), chunk_starts


def decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    pool: torch.Tensor,
    slots: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """One token per request: ``q``, ``k`` [B, H, K], ``v`` [B, HV, V], ``g`` [B, HV, 1 or K],
    ``beta`` [B, HV]. Returns [B, HV, V] in v's type; padding rows are zero."""
    queries, keys = prepare_queries_and_keys(q, k, v.shape[1], scale, True)
    index = slots.long()
    live = index >= 0
    state, out = delta_step(pool[index.clamp(min=0)].float(), queries, keys, v.float(), g, beta)
    if bool(live.all()):
        pool[index] = state.to(pool.dtype)
    else:
        pool[index[live]] = state[live].to(pool.dtype)
        out = out * live[:, None, None]
    return out.to(v.dtype)


def verify(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    *,
    pool: torch.Tensor,
    slots: torch.Tensor,
    query_start_loc: torch.Tensor,
    snapshots: torch.Tensor | None = None,
    snapshot_rows: torch.Tensor | None = None,
    parents: torch.Tensor | None = None,
    commit: bool = False,
) -> torch.Tensor:
    """Several tokens per request, token by token, with every state kept.

    Shapes as in `prefill`. ``snapshots`` [rows, steps, HV, V, K] receives the state after each
    token at row ``snapshot_rows[i]``; ``parents`` [B, steps] makes the tokens a tree, each
    continuing from its parent's state. The pool changes only with ``commit``.
    """
    queries, keys = prepare_queries_and_keys(q[0], k[0], v.shape[2], None, True)
    values = v[0].float()
    bounds, out = query_start_loc.tolist(), torch.zeros_like(values)
    lengths = [end - start for start, end in itertools.pairwise(bounds)]
    count = len(lengths)
    index = slots[:count].long()
    live = index >= 0
    first = pool[index.clamp(min=0)].float() * live[:, None, None, None]
    starts = torch.tensor(bounds[:-1])
    rows = None if snapshot_rows is None else snapshot_rows[:count].long()
    states: list[torch.Tensor] = []
    final = first
    for t in range(max(lengths, default=0)):
        # Requests may differ in length; those that ended keep their state and write nothing.
        active = torch.tensor([length > t for length in lengths])
        at = (starts + t).clamp(max=values.shape[0] - 1)
        before = _state_before(t, first, states, parents)
        state, step_out = delta_step(before, queries[at], keys[at], values[at], g[at], beta[at])
        states.append(state)
        out[at[active]] = step_out[active]
        final = torch.where(active[:, None, None, None], state, final)
        if snapshots is not None and rows is not None:
            keep = active & live & (rows >= 0)
            snapshots[rows[keep], t] = state[keep].to(snapshots.dtype)
    if commit:
        pool[index[live]] = final[live].to(pool.dtype)
    return out.view(v.shape).to(v.dtype)


def _state_before(
    step: int, first: torch.Tensor, states: list[torch.Tensor], parents: torch.Tensor | None
) -> torch.Tensor:
    """State [B, HV, V, K] that token ``step`` of every request continues from."""
    if step == 0:
        return first
    if parents is None:
        return states[-1]
    batch = torch.arange(first.shape[0])
    return torch.stack(states, dim=1)[batch, parents[: first.shape[0], step].long()]
