"""Prefill, decode and target verify over a state pool."""

from __future__ import annotations

import pytest
import torch
from sglang_worker.reference_platform import recurrence
from sglang_worker.reference_platform.delta_rule import prepare_queries_and_keys

from tests.unit.reference_platform.reference import delta_rule_by_steps, random_delta_inputs

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
BOTH = pytest.mark.parametrize("channels", [False, True], ids=["gdn", "kda"])


def _pool() -> torch.Tensor:
    return torch.randn(6, 3, 4, 5, generator=torch.Generator().manual_seed(3))


def _expected(
    inputs: Inputs, tokens: list[int], state: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    q, k, v, g, beta = (part[tokens] for part in inputs)
    queries, keys = prepare_queries_and_keys(q, k, v.shape[1], None, True)
    return delta_rule_by_steps(queries, keys, v, g, beta, state)


def _packed(inputs: Inputs) -> Inputs:
    q, k, v, g, beta = inputs
    return q[None], k[None], v[None], g, beta


@BOTH
def test_prefill_continues_each_sequence_from_its_slot(channels: bool) -> None:
    inputs, pool = random_delta_inputs(90, channels), _pool()
    before = pool.clone()
    out, _ = recurrence.prefill(
        *_packed(inputs),
        pool=pool,
        slots=torch.tensor([4, 1]),
        query_start_loc=torch.tensor([0, 70, 90]),
    )
    for tokens, slot in ((list(range(70)), 4), (list(range(70, 90)), 1)):
        expected, states = _expected(inputs, tokens, before[slot])
        torch.testing.assert_close(out[0, tokens], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(pool[slot], states[-1], atol=1e-5, rtol=1e-5)
    untouched = [0, 2, 3, 5]
    assert torch.equal(pool[untouched], before[untouched])


def test_prefill_records_the_state_at_the_tracked_chunk() -> None:
    inputs, pool = random_delta_inputs(150, False), _pool()
    before, tracked = pool.clone(), torch.zeros(1, 3, 4, 5)
    recurrence.prefill(
        *_packed(inputs),
        pool=pool,
        slots=torch.tensor([2]),
        query_start_loc=torch.tensor([0, 150]),
        tracked=recurrence.TrackedStates(tracked, torch.tensor([2])),
    )
    _, states = _expected(inputs, list(range(150)), before[2])
    torch.testing.assert_close(tracked[0], states[127], atol=1e-5, rtol=1e-5)


def test_prefill_without_update_leaves_the_pool_alone() -> None:
    pool = _pool()
    before = pool.clone()
    recurrence.prefill(
        *_packed(random_delta_inputs(9, False)),
        pool=pool,
        slots=torch.tensor([2]),
        query_start_loc=torch.tensor([0, 9]),
        inplace=False,
    )
    assert torch.equal(pool, before)


@BOTH
def test_decode_advances_every_live_slot_and_skips_padding(channels: bool) -> None:
    inputs, pool = random_delta_inputs(3, channels), _pool()
    before = pool.clone()
    q, k, v, g, beta = inputs
    out = recurrence.decode(q, k, v, g, beta, pool=pool, slots=torch.tensor([5, -1, 0]))
    for row, slot in ((0, 5), (2, 0)):
        expected, states = _expected(inputs, [row], before[slot])
        torch.testing.assert_close(out[row], expected[0], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(pool[slot], states[0], atol=1e-5, rtol=1e-5)
    assert not bool(out[1].any())
    assert torch.equal(pool[1:5], before[1:5])


@BOTH
def test_verify_of_a_chain_keeps_every_state_and_leaves_the_pool_alone(channels: bool) -> None:
    inputs, pool = random_delta_inputs(8, channels), _pool()
    before, snapshots = pool.clone(), torch.zeros(7, 4, 3, 4, 5)
    out = recurrence.verify(
        *_packed(inputs),
        pool=pool,
        slots=torch.tensor([3, 2]),
        query_start_loc=torch.tensor([0, 4, 8]),
        snapshots=snapshots,
        snapshot_rows=torch.tensor([6, 1]),
    )
    for tokens, slot, row in (([0, 1, 2, 3], 3, 6), ([4, 5, 6, 7], 2, 1)):
        expected, states = _expected(inputs, tokens, before[slot])
        torch.testing.assert_close(out[0, tokens], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(snapshots[row], torch.stack(states), atol=1e-5, rtol=1e-5)
    assert torch.equal(pool, before)


@BOTH
def test_verify_of_a_tree_continues_from_the_parent(channels: bool) -> None:
    inputs, pool = random_delta_inputs(5, channels), _pool()
    snapshots = torch.zeros(1, 5, 3, 4, 5)
    parents = torch.tensor([[0, 0, 0, 1, 2]])
    out = recurrence.verify(
        *_packed(inputs),
        pool=pool,
        slots=torch.tensor([3]),
        query_start_loc=torch.tensor([0, 5]),
        snapshots=snapshots,
        snapshot_rows=torch.tensor([0]),
        parents=parents,
    )
    for path in ([0, 1, 3], [0, 2, 4]):
        expected, states = _expected(inputs, path, pool[3])
        torch.testing.assert_close(out[0, path], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(snapshots[0, path], torch.stack(states), atol=1e-5, rtol=1e-5)


def test_verify_with_commit_serves_requests_of_different_length() -> None:
    inputs, pool = random_delta_inputs(4, False), _pool()
    before = pool.clone()
    out = recurrence.verify(
        *_packed(inputs),
        pool=pool,
        slots=torch.tensor([0, 1, -1]),
        query_start_loc=torch.tensor([0, 1, 3, 4]),
        commit=True,
    )
    for tokens, slot in (([0], 0), ([1, 2], 1)):
        expected, states = _expected(inputs, tokens, before[slot])
        torch.testing.assert_close(out[0, tokens], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(pool[slot], states[-1], atol=1e-5, rtol=1e-5)
    assert torch.equal(pool[2:], before[2:])
