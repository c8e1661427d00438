"""Projections, gates, norms and dense attention against their definitions."""

from __future__ import annotations

import types

import pytest
import torch
from sglang_worker.reference_platform import gating, norms
from sglang_worker.reference_platform.sdpa import Span, attend, causal_mask, within_window


def test_gdn_gate_is_the_published_formula() -> None:
    a, b, rate, bias = torch.randn(4, 3), torch.randn(4, 3), torch.randn(3), torch.randn(3)
    g, beta = gating.fused_gdn_gating(rate, a, b, bias)
    torch.testing.assert_close(g[0], -rate.exp() * torch.log1p((a + bias).exp()))
    torch.testing.assert_close(beta[0], b.sigmoid())


def test_kda_gate_with_a_lower_bound_stays_above_it() -> None:
    a, rate, bias = torch.randn(4, 6) * 5, torch.randn(2), torch.randn(6)
    free = gating.kda_gate(a, rate, bias, None, 2, 3)
    bounded = gating.kda_gate(a, rate, bias, -5.0, 2, 3)
    assert free.shape == bounded.shape == (4, 2, 3)
    assert bool((bounded >= -5.0).all()) and bool((bounded <= 0).all())
    expected = -rate.exp()[None, :, None] * torch.nn.functional.softplus(
        a.view(4, 2, 3) + bias.view(2, 3)
    )
    torch.testing.assert_close(free, expected)


def test_both_projection_layouts_give_the_same_parts() -> None:
    tokens, keys, values, size = 5, 2, 4, 3
    q, k = torch.randn(2, tokens, keys, size)
    v, z = torch.randn(2, tokens, values, size)
    b, a = torch.randn(2, tokens, values)
    grouped = torch.cat(
        [q, k, v.reshape(tokens, keys, -1), z.reshape(tokens, keys, -1)], dim=-1
    ).reshape(tokens, -1)
    grouped_ba = torch.cat([b.view(tokens, keys, -1), a.view(tokens, keys, -1)], -1)
    flat = torch.cat([t.reshape(tokens, -1) for t in (q, k, v, z)], -1)
    shape = (keys, values, size, size)
    first = gating.split_interleaved_projection(grouped, grouped_ba.reshape(tokens, -1), *shape)
    second = gating.split_contiguous_projection(flat, torch.cat([b, a], -1), *shape)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(first[1], z)


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_rms_norm(activation: str) -> None:
    x, g, weight = torch.randn(3, 8), torch.randn(3, 8), torch.randn(8)
    layer = types.SimpleNamespace(weight=weight, eps=1e-6, activation=activation)
    act = getattr(torch.nn.functional, activation)
    expected = torch.nn.functional.rms_norm(x, (8,), weight, 1e-6) * act(g)
    torch.testing.assert_close(norms.gated_rms_norm_forward(layer, x, g), expected)
    grouped = norms.grouped_norm(x, weight, None, g, is_rms_norm=True, activation=activation)
    torch.testing.assert_close(grouped, expected)


def test_grouped_layer_norm_gated_before() -> None:
    x, z, weight, bias = torch.randn(3, 8), torch.randn(3, 8), torch.randn(8), torch.randn(8)
    y = (x * torch.nn.functional.silu(z)).view(3, 2, 4)
    expected = torch.nn.functional.layer_norm(y, (4,), eps=1e-6).view(3, 8) * weight + bias
    found = norms.grouped_norm(x, weight, bias, z, group_size=4, norm_before_gate=False)
    torch.testing.assert_close(found, expected)


def test_shared_expert_is_gated_and_added() -> None:
    hidden, weight, shared = torch.randn(3, 8), torch.randn(8), torch.randn(3, 8)
    expected = (hidden @ weight).sigmoid().unsqueeze(-1) * shared
    torch.testing.assert_close(gating.shared_expert_gate(hidden, weight, shared), expected)
    total = torch.ones(3, 8)
    gating.add_gated_shared_expert(hidden, weight, shared, total)
    torch.testing.assert_close(total, expected + 1)


def test_a_gate_per_head_applies_to_a_flat_output() -> None:
    out, gate = torch.randn(3, 8), torch.randn(3, 2, 4)
    expected = out * gate.view(3, 8).sigmoid()
    torch.testing.assert_close(gating.sigmoid_gated(out, gate), expected)
    gating.sigmoid_gated(out, gate, inplace=True)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("cap", [0.0, 3.0])
def test_grouped_query_attention(cap: float) -> None:
    q, k, v = torch.randn(3, 4, 8), torch.randn(5, 2, 8), torch.randn(5, 2, 6)
    mask = causal_mask(3, 5)
    assert mask is not None
    found = attend(q, k, v, mask, 0.5, cap)
    for head in range(4):
        scores = q[:, head] @ k[:, head // 2].t() * 0.5
        scores = cap * torch.tanh(scores / cap) if cap else scores
        expected = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v[:, head // 2]
        torch.testing.assert_close(found[:, head], expected)


def test_a_window_hides_what_lies_further_back() -> None:
    span = Span(torch.arange(5), 2, causal_mask(2, 5))
    assert within_window(span, 1).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert within_window(Span(torch.arange(4), 1, None), 2).int().tolist() == [[0, 1, 1, 1]]
