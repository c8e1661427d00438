"""Token rows and loss weights for training; right-padded batches of one conversation a row."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import torch
from tokenizers import Tokenizer

from sglang_worker.demo.training.corpus import Chat, docstring_paragraphs, read_chats
from sglang_worker.demo.training.corpus import sample_conversation as sample
from sglang_worker.demo.vocabulary import PAD_ID, TOKENIZER_FILE

ANSWER_WEIGHT = 1.0
CONTEXT_WEIGHT = 0.05
DOCSTRING_WEIGHT = 0.3
MAX_ROW_TOKENS = 224


class Row(msgspec.Struct, frozen=True):
    """Token ids and, for each token, how much predicting it counts."""

    tokens: tuple[int, ...]
    weights: tuple[float, ...]


class Batch(msgspec.Struct, frozen=True):
    """``tokens`` and ``weights``: [rows, longest row]; padding has weight 0."""

    tokens: torch.Tensor
    weights: torch.Tensor


class RowSource:
    """Draws batches: conversations, and every fourth row a paragraph of documentation."""

    def __init__(self, seed: int, device: str, docstring_share: float = 0.25) -> None:
        self._rng = random.Random(seed)
        self._share = docstring_share
        self._device = device
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER_FILE))
        self._chats: tuple[Chat, ...] = read_chats()
        self._paragraphs = docstring_paragraphs()

    def draw(self, rows: int) -> Batch:
        count = int(rows * self._share)
        drawn = [self._conversation() for _ in range(rows - count)]
        drawn += [self._paragraph() for _ in range(count)]
        batch = pad(drawn)
        return Batch(batch.tokens.to(self._device), batch.weights.to(self._device))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _conversation(self) -> Row:
        tokens: list[int] = []
        weights: list[float] = []
        for message in sample(self._chats, self._rng):
            head = self._encode(f"<|im_start|>{message['role']}\n")
            body = self._encode(f"{message['content']}<|im_end|>")
            tail = self._encode("\n")
            weight = ANSWER_WEIGHT if message["role"] == "assistant" else CONTEXT_WEIGHT
            tokens += head + body + tail
            weights += [CONTEXT_WEIGHT] * len(head) + [weight] * len(body) + [0.0] * len(tail)
        return Row(tuple(tokens[:MAX_ROW_TOKENS]), tuple(weights[:MAX_ROW_TOKENS]))

    def _paragraph(self) -> Row:
        tokens = [*self._encode(self._rng.choice(self._paragraphs)), PAD_ID][:MAX_ROW_TOKENS]
        return Row(tuple(tokens), (DOCSTRING_WEIGHT,) * len(tokens))


def pad(rows: Sequence[Row]) -> Batch:
    width = max(len(row.tokens) for row in rows)
    tokens = torch.full((len(rows), width), PAD_ID, dtype=torch.long)
    weights = torch.zeros(len(rows), width)
    for index, row in enumerate(rows):
        tokens[index, : len(row.tokens)] = torch.tensor(row.tokens)
        weights[index, : len(row.weights)] = torch.tensor(row.weights)
    return Batch(tokens, weights)
