"""The guard on a mask of 70 tokens, packed in three int32."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.engine import grammar_guard

torch = pytest.importorskip("torch")


def made_class(allowed: list[int]) -> Any:
    class Grammar:
        vocab_size = 70

        def __init__(self) -> None:
            self.accepted: list[int] = []

        def fill_vocab_mask(self, mask: Any, row: int) -> None:
            mask[row] = torch.zeros(3, dtype=torch.int32)
            for token in allowed:
                mask[row][token // 32] |= 1 << (token % 32)

        def accept_token(self, token: int) -> None:
            self.accepted.append(token)

    grammar_guard.guard(Grammar)
    grammar_guard.guard(Grammar)
    return Grammar


def test_a_grammar_that_can_go_on_is_left_alone() -> None:
    grammar = made_class([3, 40])()
    mask = torch.full((2, 3), -1, dtype=torch.int32)
    grammar.fill_vocab_mask(mask, 1)
    assert mask[1].tolist() == [1 << 3, 1 << 8, 0]
    assert mask[0].tolist() == [-1, -1, -1]
    grammar.accept_token(3)
    assert grammar.accepted == [3]


def test_a_grammar_without_a_way_on_gets_one_token_that_it_then_refuses() -> None:
    grammar = made_class([])()
    mask = torch.full((1, 3), -1, dtype=torch.int32)
    grammar.fill_vocab_mask(mask, 0)
    assert mask[0].tolist() == [0, 0, 1 << (69 % 32)]
    with pytest.raises(ValueError, match="no token can continue"):
        grammar.accept_token(69)
    assert grammar.accepted == []


def test_the_sign_bit_of_a_row_can_be_set() -> None:
    class Grammar:
        vocab_size = 64

    row = torch.zeros(2, dtype=torch.int32)
    grammar_guard.check_row(Grammar(), row)
    assert row.tolist() == [0, -(1 << 31)]
