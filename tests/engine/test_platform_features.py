"""What else the worker relies on and the platform must not break."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import EngineFactory
from tests.engine.engine_host import EngineHost
from tests.engine.scoring import compare, generated, random_tokens
from tests.engine.transformers_host import TransformersHost

pytestmark = pytest.mark.engine

PROMPTS = [random_tokens(30, 1), random_tokens(200, 2)]


def outputs(engine: EngineHost, prompts: list[list[int]], new_tokens: int = 24) -> list[list[int]]:
    return [answer["output_ids"] for answer in engine.generate(prompts, new_tokens)]


@pytest.fixture(scope="module")
def expected(engine_for: EngineFactory) -> list[list[int]]:
    return outputs(engine_for("speculative_target"), PROMPTS)


def _pause_and_continue(engine: Any) -> bool:
    from sglang.srt.managers.io_struct import ContinueGenerationReqInput, PauseGenerationReqInput

    manager, loop = engine.tokenizer_manager, engine.loop
    loop.run_until_complete(manager.pause_generation(PauseGenerationReqInput(mode="in_place")))
    paused = bool(manager.is_pause)
    loop.run_until_complete(manager.continue_generation(ContinueGenerationReqInput()))
    return paused


def test_pausing_and_continuing_leaves_outputs_unchanged(
    engine_for: EngineFactory, expected: list[list[int]]
) -> None:
    engine = engine_for("speculative_target")
    assert engine.run(_pause_and_continue)
    assert outputs(engine, PROMPTS) == expected


def test_memory_is_released_and_resumed(
    engine_for: EngineFactory, expected: list[list[int]]
) -> None:
    engine = engine_for("speculative_target")
    engine.call("release_memory_occupation")
    engine.call("resume_memory_occupation")
    assert outputs(engine, PROMPTS) == expected


def test_flushing_the_cache_forgets_prefixes(
    engine_for: EngineFactory, expected: list[list[int]]
) -> None:
    engine = engine_for("speculative_target")
    engine.generate(PROMPTS[1], 4)
    assert engine.generate(PROMPTS[1], 4)["meta_info"]["cached_tokens"] > 0
    assert engine.call("flush_cache").success
    assert engine.generate(PROMPTS[1], 4)["meta_info"]["cached_tokens"] == 0


def test_penalties_biases_and_filters_apply(engine_for: EngineFactory) -> None:
    engine = engine_for("speculative_target")
    answer = engine.generate(
        PROMPTS[0],
        8,
        sampling_params={"frequency_penalty": 1.0, "logit_bias": {"7": 1000.0}},
        return_logprob=True,
        top_logprobs_num=2,
    )
    assert answer["output_ids"] == [7] * 8
    assert len(answer["meta_info"]["output_top_logprobs"]) == 8
    filtered = {"temperature": 0.8, "top_p": 0.9, "top_k": 20, "min_p": 0.01}
    assert len(engine.generate(PROMPTS[0], 8, sampling_params=filtered)["output_ids"]) == 8


def test_requests_that_are_retracted_for_lack_of_memory_finish_unchanged(
    engine_for: EngineFactory,
) -> None:
    prompts = [random_tokens(60 + 10 * i, i) for i in range(8)]
    roomy = outputs(engine_for("speculative_target"), prompts, 100)
    tight = engine_for(
        "speculative_target", max_total_tokens=900, max_running_requests=8, disable_radix_cache=True
    )
    assert outputs(tight, prompts, 100) == roomy


def test_two_tensor_parallel_ranks_give_the_same_tokens(
    engine_for: EngineFactory, expected: list[list[int]]
) -> None:
    assert outputs(engine_for("speculative_target", tp_size=2), PROMPTS) == expected


def test_bfloat16_is_as_close_to_float32_as_transformers_own_bfloat16(
    engine_for: EngineFactory,
    numerics_model: Callable[[str], Path],
    transformers_host: TransformersHost,
) -> None:
    """Random weights amplify rounding, so the measure is what transformers loses itself."""
    folder = numerics_model("speculative_target")
    answers = engine_for("speculative_target", dtype="bfloat16").generate(
        PROMPTS, 24, return_logprob=True, logprob_start_len=0
    )
    runs = [generated(prompt, answer) for prompt, answer in zip(PROMPTS, answers, strict=True)]
    exact = transformers_host.score(folder, [run.prompt + run.tokens for run in runs])
    rounded = transformers_host.score(folder, [run.prompt + run.tokens for run in runs], "bfloat16")
    verdicts = compare(transformers_host, folder, runs)
    for verdict, one, other in zip(verdicts, exact, rounded, strict=True):
        theirs = max(abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True))
        ours = max(verdict.output_difference, verdict.prompt_difference)
        print("bfloat16 difference", ours, "transformers'", theirs)
        assert ours < 2 * theirs + 0.05


def test_an_adapter_changes_only_the_request_that_names_it(
    engine_for: EngineFactory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    adapter = write_adapter(tmp_path_factory.mktemp("adapter"))
    engine = engine_for(
        "qwen3", enable_lora=True, lora_paths=[f"adapter={adapter}"], max_lora_rank=8
    )
    answers = engine.generate([PROMPTS[0]] * 2, 12, lora_path=["adapter", None])
    adapted, plain = (answer["output_ids"] for answer in answers)
    assert plain == outputs(engine_for("qwen3"), [PROMPTS[0]], 12)[0]
    assert adapted != plain


def write_adapter(folder: Path) -> Path:
    """A random rank-8 LoRA on the attention projections of the ``qwen3`` model."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(9)
    shapes = {"q_proj": (128, 128), "k_proj": (64, 128), "v_proj": (64, 128), "o_proj": (128, 128)}
    weights = {}
    for layer in range(2):
        for name, (rows, columns) in shapes.items():
            prefix = f"base_model.model.model.layers.{layer}.self_attn.{name}"
            weights[f"{prefix}.lora_A.weight"] = torch.randn(8, columns) * 0.3
            weights[f"{prefix}.lora_B.weight"] = torch.randn(rows, 8) * 0.3
    save_file(weights, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(shapes),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def _embed(engine: Any, prompts: list[list[int]]) -> list[list[float]]:
    from sglang.srt.managers.io_struct import EmbeddingReqInput

    async def answers() -> Any:
        request = EmbeddingReqInput(input_ids=prompts)
        return [one async for one in engine.tokenizer_manager.generate_request(request, None)]

    return [one["embedding"] for one in engine.loop.run_until_complete(answers())[-1]]


def test_an_embedding_model_answers_with_unit_vectors(engine_for: EngineFactory) -> None:
    engine = engine_for("qwen3", is_embedding=True)
    first, second, again = engine.run(_embed, [PROMPTS[0], PROMPTS[1], PROMPTS[0]])
    assert len(first) == 128
    assert sum(x * x for x in first) == pytest.approx(1.0, abs=1e-4)
    assert first == pytest.approx(again, abs=1e-5)
    assert first != pytest.approx(second, abs=1e-2)
