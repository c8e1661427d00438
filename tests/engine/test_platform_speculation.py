"""Speculative decoding on the platform: same tokens as without, and drafts that get accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.engine.conftest import EngineFactory
from tests.engine.scoring import Generated, chi_square_limit, generated, random_tokens

pytestmark = pytest.mark.engine

NEW_TOKENS = 40
SAMPLES = 400
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
SAMPLED = ("mtp tree", "dense draft chain")


def prompts() -> list[list[int]]:
    text = random_tokens(700)
    return [text[:5], text[200:264], text[300:430], text[:600]]


def batch() -> list[list[int]]:
    text = random_tokens(700)
    return [text[50 * i : 50 * i + 20 + 13 * i] for i in range(6)]


class Outcome(msgspec.Struct, frozen=True):
    """Greedy runs by scenario, and short sampled continuations of one prompt."""

    runs: dict[str, Generated]
    samples: list[tuple[int, ...]]


def outcome(engine: Any, sampled: bool) -> Outcome:
    return Outcome(all_scenarios(engine), samples(engine) if sampled else [])


def samples(engine: Any) -> list[tuple[int, ...]]:
    """Three tokens each, drawn from the three most likely ones."""
    prompt = random_tokens(20, seed=5)
    sampling = {"temperature": 1.0, "top_k": 3}
    answers = engine.generate([prompt] * SAMPLES, 3, sampling_params=sampling)
    return [tuple(answer["output_ids"]) for answer in answers]


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
def plain(engine_for: EngineFactory) -> Outcome:
    return outcome(engine_for(TARGET, chunked_prefill_size=128), sampled=True)


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def speculative(
    request: pytest.FixtureRequest,
    plain: Outcome,
    engine_for: EngineFactory,
    numerics_model: Callable[[str], Path],
) -> Outcome:
    options = dict(CONFIGURATIONS[request.param])
    numerics_model(TARGET)
    if options["speculative_algorithm"] == "STANDALONE":
        options["speculative_draft_model_path"] = str(numerics_model(DRAFT))
    engine = engine_for(TARGET, chunked_prefill_size=128, **options)
    return outcome(engine, request.param in SAMPLED)


def test_greedy_output_is_the_same_as_without_speculation(
    plain: Outcome, speculative: Outcome
) -> None:
    for name, run in plain.runs.items():
        assert speculative.runs[name].tokens == run.tokens, name


def test_log_probabilities_are_the_same_as_without_speculation(
    plain: Outcome, speculative: Outcome
) -> None:
    for name, run in plain.runs.items():
        pairs = zip(run.logprobs, speculative.runs[name].logprobs, strict=True)
        assert max(abs(a - b) for a, b in pairs) < LOGPROB_TOLERANCE, name


def test_the_acceptance_length_is_reported_and_above_one(speculative: Outcome) -> None:
    lengths = {name: run.accept_length for name, run in speculative.runs.items()}
    assert all(length is not None and length >= 1 for length in lengths.values()), lengths
    mean = sum(length or 0 for length in lengths.values()) / len(lengths)
    print("mean acceptance length", mean)
    assert mean > 1.02, lengths


def test_sampled_output_follows_the_same_distribution(plain: Outcome, speculative: Outcome) -> None:
    """Chi-square over whole continuations, two samples of equal size, 99.99 % limit."""
    if not speculative.samples:
        pytest.skip("sampled with one chain and one tree configuration only")
    ours, theirs = Counter(speculative.samples), Counter(plain.samples)
    statistic, degrees = 0.0, -1
    for continuation in set(ours) | set(theirs):
        a, b = ours[continuation], theirs[continuation]
        statistic += (a - b) ** 2 / (a + b)
        degrees += 1
    print("chi-square", statistic, "degrees of freedom", degrees)
    assert degrees > 5
    assert statistic < chi_square_limit(degrees)
