"""Top-k and top-p renormalisation."""

from __future__ import annotations

import torch
from sglang_worker.reference_platform.renorm import top_k_renorm_prob, top_p_renorm_prob

ROWS = torch.tensor([[0.1, 0.4, 0.3, 0.2], [0.7, 0.1, 0.1, 0.1]])


def test_top_k_keeps_the_largest_per_row() -> None:
    result = top_k_renorm_prob(ROWS, torch.tensor([2, 1]))
    torch.testing.assert_close(result[0], torch.tensor([0.0, 4 / 7, 3 / 7, 0.0]))
    torch.testing.assert_close(result[1], torch.tensor([1.0, 0.0, 0.0, 0.0]))


def test_a_k_beyond_the_vocabulary_changes_nothing() -> None:
    torch.testing.assert_close(top_k_renorm_prob(ROWS, torch.tensor([1 << 30, 4])), ROWS)


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    result = top_p_renorm_prob(ROWS, torch.tensor([0.6, 0.5]))
    torch.testing.assert_close(result[0], torch.tensor([0.0, 4 / 7, 3 / 7, 0.0]))
    torch.testing.assert_close(result[1], torch.tensor([1.0, 0.0, 0.0, 0.0]))


def test_top_p_of_zero_keeps_one_token() -> None:
    assert top_p_renorm_prob(ROWS, torch.tensor([0.0, 0.0])).count_nonzero(-1).tolist() == [1, 1]


def test_top_p_of_one_changes_nothing() -> None:
    torch.testing.assert_close(top_p_renorm_prob(ROWS, torch.tensor([1.0, 1.0])), ROWS)
