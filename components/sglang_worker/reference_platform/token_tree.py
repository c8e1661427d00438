"""The draft token tree in SGLang's first-child/next-sibling form."""

from __future__ import annotations

from collections.abc import Sequence


def parents_of(next_token: Sequence[int], next_sibling: Sequence[int]) -> list[int]:
    """Parent position of every node; -1 for the root and for nodes outside the tree.

    ``next_token[i]`` is i's first child, ``next_sibling[i]`` the next child of i's parent, -1 for
    none. A node stands before its children and before its next sibling.
    """
    parents = [-1] * len(next_token)
    for node, (child, sibling) in enumerate(zip(next_token, next_sibling, strict=True)):
        if child != -1:
            parents[child] = node
        if sibling != -1:
            parents[sibling] = parents[node]
    return parents


def path_to(node: int, parents: Sequence[int], length: int) -> list[int]:
    """The last ``length`` positions up to ``node``, oldest first.

    Above the root the path goes on with -1, -2, …: the tokens that precede the tree.
    """
    path = [node]
    while len(path) < length:
        node = parents[node] if node > 0 else node - 1
        path.append(node)
    return path[::-1]
