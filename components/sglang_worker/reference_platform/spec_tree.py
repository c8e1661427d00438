"""Draft trees: building, greedy verification and sampling verification. Imports only torch.

Arguments keep SGLang's names (``retrive_*`` included: that is its keyword). Per request the tree
has ``n`` nodes, the root being the last verified token; node order is parents first.
"""

from __future__ import annotations

from typing import Any

import torch

_FULL_MASK, _TREE_ONLY_MASK = 0, 1


def _tree_parents(selected: list[int], parent_list: list[int], topk: int) -> list[int]:
    """Parent node of every node; -1 for the root and -2 for a node whose parent was not kept.

    ``selected[i]`` is candidate i's place among all scored ones: layers of ``topk``, the first
    layer below the root, each later group below the candidate that ``parent_list`` names.
    """
    parents = [-1]
    for candidate in selected:
        group = candidate // topk
        if group == 0:
            parents.append(0)
            continue
        wanted = parent_list[group]
        parents.append(selected.index(wanted) + 1 if wanted in selected else -2)
    return parents


def _children_and_siblings(parents: list[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of every node, -1 for none; siblings keep node order."""
    first_child, next_sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        parent = parents[node]
        if parent >= 0:
            next_sibling[node] = first_child[parent]
            first_child[parent] = node
    return first_child, next_sibling


def _ancestors(node: int, parents: list[int], max_depth: int) -> list[int]:
    """The node and its ancestors below the root, at most ``max_depth`` of them."""
    found: list[int] = []
    while node > 0 and len(found) < max_depth:
        found.append(node)
        node = parents[node]
    return found


def build_tree(
    parent_list: torch.Tensor,
    top_scores_index: torch.Tensor,
    seq_lens: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    topk: int,
    spec_steps: int,
    num_verify_tokens: int,
    tree_mask_mode: Any,
) -> None:
    """Fills the attention mask, positions and links of every request's draft tree.

    The full mask is, per request, [n, length + n] (the prefix part is the caller's); the
    tree-only mask [n, n]. A node sees the root, its ancestors and itself.
    """
    mode = int(tree_mask_mode)
    if mode not in (_FULL_MASK, _TREE_ONLY_MASK):
        raise ValueError(f"draft tree mask mode {tree_mask_mode!r} is not supported on the CPU")
    nodes = num_verify_tokens
    selected, lengths = top_scores_index.tolist(), seq_lens.tolist()
    named = parent_list.tolist()
    if named and not isinstance(named[0], list):
        named = [named] * len(lengths)
    mask_offset = 0
    for request, length in enumerate(lengths):
        parents = _tree_parents(selected[request][: nodes - 1], named[request], topk)
        first_child, next_sibling = _children_and_siblings(parents)
        seen = torch.zeros(nodes, nodes, dtype=torch.bool)
        seen[:, 0] = True
        depth = [0] * nodes
        for node in range(1, nodes):
            path = _ancestors(node, parents, spec_steps)
            seen[node, path] = True
            depth[node] = len(path)
        span = slice(request * nodes, (request + 1) * nodes)
        retrieve_index.view(-1)[span] = torch.arange(span.start, span.stop)
        retrieve_next_token.view(-1)[span] = torch.tensor(first_child)
        retrieve_next_sibling.view(-1)[span] = torch.tensor(next_sibling)
        positions.view(-1)[span] = length + torch.tensor(depth)
        width = length + nodes if mode == _FULL_MASK else nodes
        block = tree_mask.view(-1)[mask_offset : mask_offset + nodes * width].view(nodes, width)
        block[:, width - nodes :] = seen
        mask_offset += nodes * width


def verify_greedy(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrieve_index: torch.Tensor,
    retrieve_next_token: torch.Tensor,
    retrieve_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
    topk: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Follows the branch that agrees with the target's argmax; the rest is rejected.

    ``candidates``, ``target_predict`` [B, n]. Writes the accepted nodes to ``accept_index``, the
    target's token after each of them to ``predicts`` and the number of accepted drafts.
    """
    tokens, index = candidates.tolist(), retrieve_index.tolist()
    children, siblings = retrieve_next_token.tolist(), retrieve_next_sibling.tolist()
    wanted = target_predict.reshape(-1).tolist()
    for request in range(len(tokens)):
        node, last, accepted = 0, index[request][0], 0
        accept_index[request, 0] = last
        for _ in range(1, accept_index.shape[1]):
            node = children[request][node]
            while node != -1 and tokens[request][node] != wanted[last]:
                node = siblings[request][node]
            if node == -1:
                break
            predicts[last] = wanted[last]
            last = index[request][node]
            accepted += 1
            accept_index[request, accepted] = last
        accept_token_num[request] = accepted
        predicts[last] = wanted[last]
    return predicts, accept_index, accept_token_num


def _accept_child(
    node: int,
    tokens: list[int],
    children: list[int],
    siblings: list[int],
    row: torch.Tensor,
    coin: float,
    threshold_single: float,
    threshold_acc: float,
) -> tuple[int, list[int]]:
    """The accepted child of ``node`` or -1, and the tokens that were rejected on the way.

    The coin falls into [0, 1); children take consecutive intervals as long as their target
    probability, so each is accepted with exactly that probability (at thresholds of 1).
    """
    rejected: list[int] = []
    covered = 0.0
    child = children[node]
    while child != -1:
        token = tokens[child]
        probability = float(row[token])
        if token not in rejected:
            covered += probability
        if coin < covered / threshold_acc or probability >= threshold_single:
            return child, rejected
        rejected.append(token)
        child = siblings[child]
    return -1, rejected


def _draw(weights: torch.Tensor, coin: float) -> int:
    """Index drawn from unnormalised ``weights`` [V] by a coin in [0, 1)."""
    cumulative = weights.double().cumsum(0)
    total = float(cumulative[-1])
    index = int(torch.searchsorted(cumulative, torch.tensor(coin * total).double(), right=True))
    return min(index, int(weights.nonzero()[-1])) if total > 0 else 0


def verify_sampling(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    uniform_samples: torch.Tensor,
    uniform_samples_for_final_sampling: torch.Tensor,
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    threshold_single: float = 1.0,
    threshold_acc: float = 1.0,
    deterministic: bool = True,
) -> None:
    """Sampling verification that keeps the target's distribution.

    ``target_probs`` [B, n, V]: the target's distribution after each node. Walks down the tree:
    a node's children are tried against one coin (`_accept_child`); when none is accepted, the
    next token is drawn from what is left of the distribution without the rejected tokens, and
    after the deepest accepted node from the whole of it. ``draft_probs`` is not used: the
    drafts are tried as point proposals.
    """
    tokens, index = candidates.tolist(), retrive_index.tolist()
    children, siblings = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    coins = uniform_samples.tolist()
    final_coins = uniform_samples_for_final_sampling.tolist()
    for request in range(len(tokens)):
        node, last, accepted = 0, index[request][0], 0
        accept_index[request, 0] = last
        rejected: list[int] = []
        while accepted + 1 < accept_index.shape[1]:
            child, rejected = _accept_child(
                node,
                tokens[request],
                children[request],
                siblings[request],
                target_probs[request, node],
                coins[request][node],
                threshold_single,
                max(threshold_acc, 1e-9),
            )
            if child == -1:
                break
            predicts[last] = tokens[request][child]
            node, last = child, index[request][child]
            accepted += 1
            accept_index[request, accepted] = last
            rejected = []
        accept_token_num[request] = accepted
        left = target_probs[request, node].clone()
        if rejected:
            left[rejected] = 0
        if not bool(left.any()):
            left = target_probs[request, node]
        predicts[last] = _draw(left, final_coins[request])
