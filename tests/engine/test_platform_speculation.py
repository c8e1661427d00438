"""Speculative decoding on the platform: same tokens as without, and drafts that get accepted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import EngineFactory
from tests.engine.scoring import Generated, generated, random_tokens

pytestmark = pytest.mark.engine

NEW_TOKENS = 40
LOGPROB_TOLERANCE = 2e-4
TARGET, DRAFT = "speculative_target", "speculative_draft"
TREE = {"speculative_num_steps": 2, "speculative_eagle_topk": 2, "speculative_num_draft_tokens": 4}
CHAIN = {"speculative_num_steps": 2, "speculative_eagle_topk": 1, "speculative_num_draft_tokens": 3}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "mtp chain": {"speculative_algorithm": "NEXTN", **CHAIN},
    "mtp tree": {"speculative_algorithm": "NEXTN", **TREE},
    "dense draft chain": {"speculative_algorithm": "STANDALONE", **CHAIN},
    "dense draft tree": {"speculative_algorithm": "STANDALONE", **TREE},
    "one step": {
        "speculative_algorithm": "NEXTN",
        "speculative_num_steps": 1,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 2,
    },
}


def prompts() -> list[list[int]]:
    text = random_tokens(700)
    return [text[:5], text[200:264], text[300:430], text[:600]]


def batch() -> list[list[int]]:
    text = random_tokens(700)
    return [text[50 * i : 50 * i + 20 + 13 * i] for i in range(6)]


def all_scenarios(engine: Any) -> dict[str, Generated]:
    """Alone, again with a cached prefix, and six at once."""
    options = {"return_logprob": True, "logprob_start_len": -1}
    runs = {}
    for round_name in ("fresh", "again"):
        for prompt in prompts():
            answer = engine.generate(prompt, NEW_TOKENS, **options)
            runs[f"{round_name} {len(prompt)}"] = generated(prompt, answer)
    answers = engine.generate(batch(), NEW_TOKENS, **options)
    for i, (prompt, answer) in enumerate(zip(batch(), answers, strict=True)):
        runs[f"batch {i}"] = generated(prompt, answer)
    return runs


@pytest.fixture(scope="module")
def plain(engine_for: EngineFactory) -> dict[str, Generated]:
    return all_scenarios(engine_for(TARGET, chunked_prefill_size=128))


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def speculative(
    request: pytest.FixtureRequest,
    plain: dict[str, Generated],
    engine_for: EngineFactory,
    numerics_model: Callable[[str], Path],
) -> dict[str, Generated]:
    options = dict(CONFIGURATIONS[request.param])
    numerics_model(TARGET)
    if options["speculative_algorithm"] == "STANDALONE":
        options["speculative_draft_model_path"] = str(numerics_model(DRAFT))
    return all_scenarios(engine_for(TARGET, chunked_prefill_size=128, **options))


def test_greedy_output_is_the_same_as_without_speculation(
    plain: dict[str, Generated], speculative: dict[str, Generated]
) -> None:
    different = [name for name, run in plain.items() if speculative[name].tokens != run.tokens]
    assert not different


def test_log_probabilities_are_the_same_as_without_speculation(
    plain: dict[str, Generated], speculative: dict[str, Generated]
) -> None:
    for name, run in plain.items():
        pairs = zip(run.logprobs, speculative[name].logprobs, strict=True)
        assert max(abs(a - b) for a, b in pairs) < LOGPROB_TOLERANCE, name


def test_the_acceptance_length_is_reported_and_above_one(
    speculative: dict[str, Generated],
) -> None:
    lengths = {name: run.accept_length for name, run in speculative.items()}
    assert all(length is not None and length >= 1 for length in lengths.values()), lengths
    mean = sum(length or 0 for length in lengths.values()) / len(lengths)
    print("mean acceptance length", mean)
    assert mean > 1.02, lengths
