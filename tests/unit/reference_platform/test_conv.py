"""The causal convolution: prefill, decode and target verify."""

from __future__ import annotations

import torch
from sglang_worker.reference_platform.conv import causal_conv1d_fn, causal_conv1d_update

from tests.unit.reference_platform.reference import convolution_by_steps

DIM, WIDTH = 6, 4


def _setup() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(5, DIM, WIDTH - 1), torch.randn(DIM, WIDTH), torch.randn(DIM)


def test_prefill_continues_windows_where_asked_and_updates_them() -> None:
    states, weight, bias = _setup()
    before, x = states.clone(), torch.randn(DIM, 12)
    out = causal_conv1d_fn(
        x,
        weight,
        bias,
        states,
        torch.tensor([0, 7, 9, 12]),
        cache_indices=torch.tensor([3, 1, -1]),
        has_initial_state=torch.tensor([True, False, True]),
    )
    for span, slot, window in (
        (slice(0, 7), 3, before[3]),
        (slice(7, 9), 1, torch.zeros(DIM, WIDTH - 1)),
    ):
        expected, after = convolution_by_steps(x[:, span], window, weight, bias)
        torch.testing.assert_close(out[:, span], expected)
        torch.testing.assert_close(states[slot], after)
    assert torch.equal(states[[0, 2, 4]], before[[0, 2, 4]])


def test_decode_shifts_the_window_and_skips_padding() -> None:
    states, weight, bias = _setup()
    before, x = states.clone(), torch.randn(3, DIM)
    out = causal_conv1d_update(
        x, states, weight, bias, "silu", conv_state_indices=torch.tensor([2, -1, 0])
    )
    for row, slot in ((0, 2), (2, 0)):
        expected, after = convolution_by_steps(x[row].unsqueeze(1), before[slot], weight, bias)
        torch.testing.assert_close(out[row], expected[:, 0])
        torch.testing.assert_close(states[slot], after)
    assert torch.equal(states[[1, 3, 4]], before[[1, 3, 4]])


def test_verify_of_a_chain_keeps_the_window_after_every_token() -> None:
    states, weight, bias = _setup()
    before, x = states.clone(), torch.randn(2, 3, DIM).transpose(1, 2)
    windows = torch.zeros(4, 3, DIM, WIDTH - 1)
    out = causal_conv1d_update(
        x,
        states,
        weight,
        bias,
        "silu",
        conv_state_indices=torch.tensor([4, 1]),
        intermediate_conv_window=windows,
        intermediate_state_indices=torch.tensor([3, 0]),
    )
    assert out.stride() == x.stride()
    for request, slot, row in ((0, 4, 3), (1, 1, 0)):
        for t in range(3):
            expected, after = convolution_by_steps(
                x[request, :, : t + 1], before[slot], weight, bias
            )
            torch.testing.assert_close(out[request, :, t], expected[:, t])
            torch.testing.assert_close(windows[row, t], after)


def test_verify_of_a_tree_follows_the_ancestors_and_reports_parents() -> None:
    states, weight, bias = _setup()
    x = torch.randn(1, 5, DIM).transpose(1, 2)
    windows, parents = torch.zeros(1, 5, DIM, WIDTH - 1), torch.full((1, 5), 7)
    window = states[2].clone()
    # Node 0 has children 1 and 2; 3 continues 1 and 4 continues 2.
    out = causal_conv1d_update(
        x,
        states,
        weight,
        bias,
        "silu",
        conv_state_indices=torch.tensor([2]),
        intermediate_conv_window=windows,
        intermediate_state_indices=torch.tensor([0]),
        retrieve_next_token=torch.tensor([[1, 3, 4, -1, -1]]),
        retrieve_next_sibling=torch.tensor([[-1, 2, -1, -1, -1]]),
        retrieve_parent_token=parents,
    )
    assert parents.tolist() == [[0, 0, 0, 1, 2]]
    for path in ([0], [0, 1], [0, 2], [0, 1, 3], [0, 2, 4]):
        expected, after = convolution_by_steps(x[0][:, path], window, weight, bias)
        torch.testing.assert_close(out[0, :, path[-1]], expected[:, -1])
        torch.testing.assert_close(windows[0, path[-1]], after)
