"""Block diffusion on the CPU platform writes what its definition on transformers writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import EngineFactory
from tests.engine.scoring import random_tokens
from tests.engine.transformers_host import TransformersHost

pytestmark = pytest.mark.engine

TOKENS = 18
# Shorter than a block, a block, inside the second, and many blocks.
PROMPTS = [[token % 1000 for token in random_tokens(length, length)] for length in (1, 4, 6, 60)]


def test_tokens_are_those_of_the_definition(
    engine_for: EngineFactory,
    transformers_host: TransformersHost,
    checkpoint: Callable[[str], Path],
) -> None:
    folder = checkpoint("dllm")
    expected = transformers_host.denoise(folder, PROMPTS, TOKENS)
    assert len({tuple(one) for one in expected}) == len(PROMPTS)
    engine = engine_for(folder, dllm_algorithm="LowConfidence")
    for prompt, tokens in zip(PROMPTS, expected, strict=True):
        assert engine.generate(prompt, TOKENS)["output_ids"] == tokens
    # Together, and with their beginnings cached.
    together = engine.generate(PROMPTS, TOKENS)
    assert [answer["output_ids"] for answer in together] == expected
