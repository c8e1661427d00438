"""Hugging Face transformers in a clean process: writes models and scores token sequences.

SGLang patches transformers and torch; a reference that shared its process would prove nothing.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.engine import denoising, models
from tests.engine.host import Host, answer_all


class Scores(msgspec.Struct, frozen=True):
    """Per position after the first: log-probability of the token that is there, and how much
    more the most probable token would have had (0 when it is that token)."""

    logprobs: list[float]
    shortfalls: list[float]


class TransformersHost(Host):
    def __init__(self, log: Path) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(context, _serve, (), log, start_timeout_s=120)

    def write_model(self, name: str, folder: Path) -> None:
        self.ask(("write", name, str(folder)))

    def score(
        self, folder: Path, sequences: list[list[int]], dtype: str = "float32"
    ) -> list[Scores]:
        raw = self.ask(("score", str(folder), sequences, dtype))
        return [Scores(*one) for one in raw]

    def embed(
        self, folder: Path, inputs: Sequence[str | list[int]], pooling: str, dimensions: int | None
    ) -> list[list[float]]:
        """Normalised vectors, each input alone: the hidden state of its first (``cls``) or
        ``last`` token, cut to ``dimensions`` first."""
        vectors: list[list[float]] = self.ask(
            ("embed", str(folder), list(inputs), pooling, dimensions)
        )
        return vectors

    def denoise(self, folder: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        """What `tests.engine.denoising` writes after each prompt."""
        written: list[list[int]] = self.ask(("denoise", str(folder), prompts, tokens))
        return written


def _serve(pipe: Any) -> None:
    import torch

    torch.set_num_threads(1)
    loaded: dict[tuple[str, str], Any] = {}
    pipe.send(("ok", None))

    def handle(message: Any) -> Any:
        assert "sglang" not in sys.modules
        kind, *args = message
        if kind == "write":
            return models.write(args[0], Path(args[1]))
        if kind == "embed":
            return _embed(*args)
        if kind == "denoise":
            return denoising.write(*args)
        return _score(loaded, *args)

    answer_all(pipe, handle)


def _embed(
    folder: str, inputs: list[str | list[int]], pooling: str, dimensions: int | None
) -> list[list[float]]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    position = {"cls": 0, "last": -1}[pooling]
    vectors = []
    for one in inputs:
        ids = tokenizer(one)["input_ids"] if isinstance(one, str) else one
        with torch.no_grad():
            hidden = model(torch.tensor([ids])).last_hidden_state[0, position, :dimensions]
        vectors.append(torch.nn.functional.normalize(hidden, dim=-1).tolist())
    return vectors


def _score(
    loaded: dict[tuple[str, str], Any], folder: str, sequences: list[list[int]], dtype: str
) -> list[tuple[list[float], list[float]]]:
    import torch
    from transformers import AutoModelForCausalLM

    key = (folder, dtype)
    if key not in loaded:
        loaded.clear()
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        loaded[key] = model.eval()
    results = []
    for sequence in sequences:
        with torch.no_grad():
            logits = loaded[key](torch.tensor([sequence]), use_cache=False).logits[0]
        logprobs = logits.float().log_softmax(-1)[:-1]
        actual = logprobs.gather(-1, torch.tensor(sequence[1:]).unsqueeze(-1)).squeeze(-1)
        shortfall = logprobs.max(-1).values - actual
        results.append((actual.tolist(), shortfall.tolist()))
    return results
