"""The platform's engine against Hugging Face transformers on the same float32 weights.

The tolerance on log-probabilities is 2e-4: both sides compute in float32, in different order
(chunks of 64 tokens here, of another size or step by step there). A wrong mask, decay, window or
state shows as 1e-2 and more with these weights.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.engine.conftest import EngineFactory
from tests.engine.scoring import Comparison, Generated, compare, generated, random_tokens
from tests.engine.transformers_host import TransformersHost

pytestmark = pytest.mark.engine

LOGPROB_TOLERANCE = 2e-4
NEW_TOKENS = 24
LENGTHS = (5, 64, 130, 600)
CHUNK = 128
# On SGLang 0.5.21 as well, whose transformers has no Kimi-Linear to compare with.
FAMILIES = (
    pytest.param("qwen3", marks=pytest.mark.compat),
    pytest.param("qwen3_next", marks=pytest.mark.compat),
    pytest.param("qwen3_5", marks=pytest.mark.compat),
    pytest.param("qwen3_5_moe", marks=pytest.mark.compat),
    "kimi_linear",
)


class FamilyRun(msgspec.Struct, frozen=True):
    """Everything one engine generated, by scenario, with transformers' verdict on it."""

    runs: dict[str, Generated]
    verdicts: dict[str, Comparison]


@pytest.fixture(scope="module", params=FAMILIES)
def family(
    request: pytest.FixtureRequest,
    engine_for: EngineFactory,
    numerics_model: Callable[[str], Path],
    transformers_host: TransformersHost,
) -> FamilyRun:
    engine = engine_for(request.param, chunked_prefill_size=CHUNK)
    text = random_tokens(700)
    runs: dict[str, Generated] = {}

    def one(name: str, prompt: list[int], prompt_logprobs: bool) -> None:
        answer = engine.generate(
            prompt,
            NEW_TOKENS,
            return_logprob=True,
            logprob_start_len=0 if prompt_logprobs else -1,
        )
        runs[name] = generated(prompt, answer)

    for length in LENGTHS:
        one(f"fresh {length}", text[:length] if length != 64 else text[200:264], True)
    for length in LENGTHS:
        one(f"again {length}", runs[f"fresh {length}"].prompt, False)
    longest = runs["fresh 600"]
    one("continued", longest.prompt + longest.tokens[:-1] + text[10:30], False)
    prompts = [text[50 * i : 50 * i + 20 + 13 * i] for i in range(6)]
    answers = engine.generate(prompts, NEW_TOKENS, return_logprob=True, logprob_start_len=-1)
    for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True)):
        runs[f"batch {i}"] = generated(prompt, answer)
    verdicts = compare(transformers_host, numerics_model(request.param), list(runs.values()))
    return FamilyRun(runs, dict(zip(runs, verdicts, strict=True)))


def test_every_greedy_token_is_the_one_transformers_prefers(family: FamilyRun) -> None:
    behind = {name: verdict.worst_shortfall for name, verdict in family.verdicts.items()}
    assert max(behind.values()) < LOGPROB_TOLERANCE, behind


def test_log_probabilities_of_generated_tokens_match(family: FamilyRun) -> None:
    found = {name: verdict.output_difference for name, verdict in family.verdicts.items()}
    print("largest difference", max(found.values()))
    assert max(found.values()) < LOGPROB_TOLERANCE, found


def test_log_probabilities_of_prompt_tokens_match_across_prefill_chunks(family: FamilyRun) -> None:
    names = [f"fresh {length}" for length in LENGTHS]
    assert all(len(family.runs[name].prompt_logprobs) > 1 for name in names)
    found = {name: family.verdicts[name].prompt_difference for name in names}
    assert max(found.values()) < LOGPROB_TOLERANCE, found


def test_a_cached_prefix_is_used_and_changes_nothing(family: FamilyRun) -> None:
    assert family.runs["again 600"].cached_tokens > 0
    assert family.runs["continued"].cached_tokens > 0
    for length in LENGTHS:
        assert family.runs[f"again {length}"].tokens == family.runs[f"fresh {length}"].tokens


def test_the_weights_are_telling(family: FamilyRun) -> None:
    """Greedy outputs of different prompts differ: the model is not stuck on one token."""
    tokens = {token for run in family.runs.values() for token in run.tokens}
    assert len(tokens) > 40
