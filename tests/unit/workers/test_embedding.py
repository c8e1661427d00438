"""The embedding worker's own requests, and the models that it takes, warns about and refuses."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_worker.engine.compat_embedding import declared_pooling, read_embedding_limits
from sglang_worker.errors import EngineStartError
from sglang_worker.requests.embedding import EmbeddingLimits, map_embedding
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.workers.embedding import check_model, embedding_payload, first_batch

from tests.unit.config.support import parse

KEY = "_PROBE"


def engine_limits(context: int = 512) -> EngineLimits:
    return EngineLimits(vocab_size=100, context_length=context)


def loaded(architecture: str, pooling: str | None = None, **more: Any) -> Any:
    spec = SimpleNamespace(pooling=SimpleNamespace(value=pooling), bidirectional_attention=False)
    return SimpleNamespace(
        hf_config=SimpleNamespace(architectures=[architecture]),
        embedding_model_spec=spec,
        hidden_size=16,
        **more,
    )


def test_the_health_probe_is_an_ordinary_request_for_one_token() -> None:
    tokenizer = SimpleNamespace(bos_token_id=7)
    payload = embedding_payload(KEY, "m", tokenizer, engine_limits(), parse())
    assert payload == {"model": "m", "input": [7], KEY: True}
    limits = EmbeddingLimits(engine=engine_limits(), dimensions=4)
    assert map_embedding(payload, limits).prompts == ([7],)


def test_the_operators_probe_keeps_the_mark() -> None:
    config = parse("--health-check-payload", '{"input": "ping"}')
    payload = embedding_payload(KEY, "m", None, engine_limits(), config)
    assert payload == {"input": "ping", KEY: True}


@pytest.mark.parametrize("context", [8, 64, 4096])
def test_the_first_batch_fits_every_context(context: int) -> None:
    limits = EmbeddingLimits(engine=engine_limits(context), dimensions=4)
    prompts = map_embedding(first_batch(KEY, "m", limits.engine), limits).prompts
    assert prompts is not None and len(prompts) == 2


def pooled(folder: Path, **modes: bool) -> Path:
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    return folder


def test_the_checkpoint_says_how_it_wants_to_be_pooled(tmp_path: Path) -> None:
    assert declared_pooling(str(tmp_path)) is None
    pooled(tmp_path, pooling_mode_cls_token=False, pooling_mode_mean_tokens=True)
    assert declared_pooling(str(tmp_path)) == "mean"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"pooling_mode_max_tokens": true}'])
def test_an_unknown_pooling_file_says_nothing(tmp_path: Path, text: str) -> None:
    (pooled(tmp_path) / "1_Pooling" / "config.json").write_text(text)
    assert declared_pooling(str(tmp_path)) is None


@pytest.mark.parametrize(("pooling", "warned"), [("cls", True), ("mean", False), (None, False)])
def test_other_pooling_than_the_checkpoints_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, pooling: str | None, warned: bool
) -> None:
    args = SimpleNamespace(model_path=str(pooled(tmp_path, pooling_mode_mean_tokens=True)))
    with caplog.at_level(logging.WARNING):
        check_model(loaded("BertModel", pooling), args)
    assert ("asks for mean" in caplog.text) is warned


def test_a_classifier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineStartError, match="Qwen2ForSequenceClassification"):
        check_model(
            loaded("Qwen2ForSequenceClassification"), SimpleNamespace(model_path=str(tmp_path))
        )


def test_limits_are_read_from_the_model_s_configuration() -> None:
    model = loaded("BertModel", is_matryoshka=[8, 16], matryoshka_dimensions=[8, 16])
    manager = SimpleNamespace(model_config=model, is_generation=False)
    limits = read_embedding_limits(manager, engine_limits())
    assert limits.matryoshka and limits.matryoshka_dimensions == (8, 16)
    assert limits.dimensions == 16
    with pytest.raises(EngineStartError, match="for generation"):
        read_embedding_limits(
            SimpleNamespace(model_config=model, is_generation=True), engine_limits()
        )
