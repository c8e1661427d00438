"""Draft trees: building them, following them greedily and by sampling."""

from __future__ import annotations

import math

import pytest
import torch
from sglang_worker.reference_platform import spec_tree
from sglang_worker.reference_platform.token_tree import parents_of, path_to

FULL_MASK, TREE_ONLY_MASK = 0, 1


class Tree:
    """Output buffers of one `build_tree` call."""

    def __init__(self, lengths: list[int], nodes: int, mode: int) -> None:
        batch = len(lengths)
        per_request = [nodes * (length * (mode == FULL_MASK) + nodes) for length in lengths]
        self.mask = torch.ones(sum(per_request), dtype=torch.bool)
        self.positions = torch.empty(batch * nodes, dtype=torch.long)
        self.index, self.next_token, self.next_sibling = torch.full((3, batch, nodes), -1)

    def build(
        self, parent_list: torch.Tensor, selected: torch.Tensor, lengths: list[int], topk: int
    ) -> None:
        mode = FULL_MASK if self.mask.numel() > self.index.numel() * self.index.shape[1] else 1
        spec_tree.build_tree(
            parent_list,
            selected,
            torch.tensor(lengths),
            self.mask,
            self.positions,
            self.index,
            self.next_token,
            self.next_sibling,
            topk,
            spec_steps=2,
            num_verify_tokens=self.index.shape[1],
            tree_mask_mode=mode,
        )


def test_a_chain_is_a_line_of_first_children() -> None:
    tree = Tree([5], nodes=3, mode=FULL_MASK)
    tree.build(torch.tensor([[-1, 0]]), torch.tensor([[0, 1]]), [5], topk=1)
    assert tree.next_token.tolist() == [[1, 2, -1]]
    assert tree.next_sibling.tolist() == [[-1, -1, -1]]
    assert tree.positions.tolist() == [5, 6, 7]
    mask = tree.mask.view(3, 8)
    assert bool(mask[:, :5].all())
    assert mask[:, 5:].tolist() == torch.ones(3, 3).tril().bool().tolist()


def test_branches_see_their_ancestors_only() -> None:
    # Candidates 0 and 1 below the root; 2..3 below candidate 0, 4..5 below candidate 1.
    parent_list = torch.tensor([[-1, 0, 1]])
    tree = Tree([4], nodes=5, mode=TREE_ONLY_MASK)
    tree.build(parent_list, torch.tensor([[0, 1, 2, 4]]), [4], topk=2)
    assert parents_of(tree.next_token[0].tolist(), tree.next_sibling[0].tolist()) == [
        -1,
        0,
        0,
        1,
        2,
    ]
    assert tree.positions.tolist() == [4, 5, 5, 6, 6]
    assert tree.mask.view(5, 5).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 0, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 0, 1, 0, 1],
    ]


def test_requests_of_different_length_have_their_own_mask_blocks() -> None:
    tree = Tree([2, 6], nodes=3, mode=FULL_MASK)
    selected = torch.tensor([[0, 1], [0, 1]])
    tree.build(torch.tensor([[-1, 0], [-1, 0]]), selected, [2, 6], topk=1)
    assert tree.index.tolist() == [[0, 1, 2], [3, 4, 5]]
    first, second = tree.mask[:15].view(3, 5), tree.mask[15:].view(3, 9)
    assert (
        first[:, 2:].tolist() == second[:, 6:].tolist() == torch.ones(3, 3).tril().bool().tolist()
    )


def test_a_path_continues_before_the_root() -> None:
    assert path_to(3, [-1, 0, 0, 1], length=4) == [-1, 0, 1, 3]


def _links() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Root 0 with children 1 and 2; 3 below 1 and 4 below 2."""
    return (
        torch.tensor([[0, 1, 2, 3, 4]]),
        torch.tensor([[1, 3, 4, -1, -1]]),
        torch.tensor([[-1, 2, -1, -1, -1]]),
    )


def test_greedy_verification_follows_the_branch_that_agrees() -> None:
    predicts, accepted = torch.zeros(5, dtype=torch.int32), torch.full((1, 3), -1)
    count = torch.zeros(1, dtype=torch.int32)
    spec_tree.verify_greedy(
        predicts,
        accepted,
        count,
        torch.tensor([[9, 20, 21, 30, 31]]),
        *_links(),
        target_predict=torch.tensor([[21, 0, 31, 0, 77]]),
    )
    assert count.tolist() == [2]
    assert accepted.tolist() == [[0, 2, 4]]
    assert [predicts[i].item() for i in (0, 2, 4)] == [21, 31, 77]


def test_greedy_verification_without_agreement_yields_the_targets_token() -> None:
    predicts, accepted = torch.zeros(5, dtype=torch.int32), torch.full((1, 3), -1)
    count = torch.zeros(1, dtype=torch.int32)
    spec_tree.verify_greedy(
        predicts,
        accepted,
        count,
        torch.tensor([[9, 20, 21, 30, 31]]),
        *_links(),
        target_predict=torch.tensor([[50, 0, 0, 0, 0]]),
    )
    assert count.tolist() == [0]
    assert predicts[0] == 50


def _sample(
    probabilities: torch.Tensor, candidates: list[int], trials: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Runs the tree of `_links` ``trials`` times; first and second token (-1: none) of each."""
    torch.manual_seed(seed)
    index, children, siblings = (part.repeat(trials, 1) for part in _links())
    index = index + 5 * torch.arange(trials).unsqueeze(1)
    predicts = torch.full((5 * trials,), -1, dtype=torch.int32)
    accepted = torch.full((trials, 3), -1, dtype=torch.int32)
    count = torch.zeros(trials, dtype=torch.int32)
    spec_tree.verify_sampling(
        predicts,
        accepted,
        count,
        torch.tensor([candidates]).repeat(trials, 1),
        index,
        children,
        siblings,
        torch.rand(trials, 5),
        torch.rand(trials),
        probabilities.repeat(trials, 1, 1),
        torch.zeros(1),
    )
    first = predicts[accepted[:, 0].long()]
    second = torch.where(count > 0, predicts[accepted[:, 1].clamp(min=0).long()], -1)
    return first, second


def _chi_square(counts: torch.Tensor, expected: torch.Tensor) -> float:
    kept = expected > 0
    assert not bool(counts[~kept].any()), "a token of probability zero was drawn"
    return float(((counts - expected)[kept] ** 2 / expected[kept]).sum())


def _limit(degrees: int) -> float:
    """About the 99.99 % quantile of chi-square (Wilson and Hilferty)."""
    part = 2 / (9 * degrees)
    return degrees * (1 - part + 3.72 * math.sqrt(part)) ** 3


def _probabilities(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    rows = torch.rand(1, 5, 6, generator=generator) + 0.1
    rows[0, 0, 5] = 0
    return rows / rows.sum(-1, keepdim=True)


@pytest.mark.parametrize("candidates", [[0, 1, 2, 3, 4], [0, 4, 0, 1, 2], [0, 5, 3, 0, 0]])
def test_sampling_verification_keeps_the_targets_distribution(candidates: list[int]) -> None:
    trials, probabilities = 6000, _probabilities(1)
    first, _ = _sample(probabilities, candidates, trials, seed=2)
    counts = torch.bincount(first.long(), minlength=6).double()
    assert _chi_square(counts, trials * probabilities[0, 0].double()) < _limit(4)


def test_the_token_after_an_accepted_draft_follows_that_drafts_distribution() -> None:
    candidates, probabilities = [0, 1, 2, 3, 4], _probabilities(1)
    first, second = _sample(probabilities, candidates, 8000, seed=4)
    for node in (1, 2):
        after = second[first == candidates[node]]
        counts = torch.bincount(after.long(), minlength=6).double()
        assert len(after) > 300
        assert _chi_square(counts, len(after) * probabilities[0, node].double()) < _limit(5)


def test_a_low_threshold_accepts_likely_drafts_without_a_coin() -> None:
    probabilities = torch.tensor([[[0.4, 0.6]] * 5])
    index, children, siblings = _links()
    predicts, accepted = torch.zeros(5, dtype=torch.int32), torch.full((1, 3), -1)
    count = torch.zeros(1, dtype=torch.int32)
    spec_tree.verify_sampling(
        predicts,
        accepted,
        count,
        torch.tensor([[0, 1, 0, 1, 0]]),
        index,
        children,
        siblings,
        torch.full((1, 5), 0.99),
        torch.tensor([0.5]),
        probabilities,
        torch.zeros(1),
        threshold_single=0.5,
    )
    assert count.tolist() == [2]
