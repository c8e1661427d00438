"""The chunked delta rule equals the step-by-step one."""

from __future__ import annotations

import pytest
import torch
from sglang_worker.reference_platform.delta_rule import (
    delta_rule_chunked,
    delta_step,
    prepare_queries_and_keys,
)

from tests.unit.reference_platform.reference import delta_rule_by_steps, random_delta_inputs

STATE = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("channels", [False, True], ids=["gdn", "kda"])
@pytest.mark.parametrize("tokens", [1, 7, 16, 17, 50])
def test_chunks_give_the_outputs_and_state_of_single_steps(tokens: int, channels: bool) -> None:
    inputs = random_delta_inputs(tokens, channels)
    expected, states = delta_rule_by_steps(*inputs, STATE)
    result = delta_rule_chunked(*inputs, STATE, chunk=16)
    torch.testing.assert_close(result.out, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(result.state, states[-1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("channels", [False, True], ids=["gdn", "kda"])
def test_the_state_before_every_chunk_is_reported(channels: bool) -> None:
    inputs = random_delta_inputs(40, channels)
    _, states = delta_rule_by_steps(*inputs, STATE)
    starts = delta_rule_chunked(*inputs, STATE, chunk=16).starts
    for start, expected in zip(starts, [STATE, states[15], states[31]], strict=True):
        torch.testing.assert_close(start, expected, atol=1e-5, rtol=1e-5)


def test_a_strong_decay_over_a_whole_chunk_stays_finite() -> None:
    q, k, v, g, beta = random_delta_inputs(64, False)
    result = delta_rule_chunked(q, k, v, g * 100, beta, STATE)
    assert bool(result.out.isfinite().all())
    assert bool(result.state.isfinite().all())


def test_one_step_works_on_a_batch() -> None:
    q, k, v, g, beta = random_delta_inputs(2, True)
    states = torch.stack([STATE, STATE * 2])
    new, out = delta_step(states, q, k, v, g, beta)
    for i in range(2):
        expected, after = delta_rule_by_steps(
            q[i : i + 1], k[i : i + 1], v[i : i + 1], g[i : i + 1], beta[i : i + 1], states[i]
        )
        torch.testing.assert_close(out[i], expected[0])
        torch.testing.assert_close(new[i], after[0])


def test_queries_and_keys_are_normalised_scaled_and_repeated_to_the_value_heads() -> None:
    q, k = torch.randn(2, 2, 8), torch.randn(2, 2, 8)
    queries, keys = prepare_queries_and_keys(q, k, value_heads=4, scale=None, normalize=True)
    assert queries.shape == keys.shape == (2, 4, 8)
    torch.testing.assert_close(keys.norm(dim=-1), torch.ones(2, 4), atol=1e-5, rtol=0)
    torch.testing.assert_close(keys[:, 0], keys[:, 1])
    torch.testing.assert_close(queries.norm(dim=-1), torch.full((2, 4), 8**-0.5), atol=1e-5, rtol=0)
