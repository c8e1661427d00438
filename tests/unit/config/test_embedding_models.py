"""A model whose attention looks both ways computes each prompt whole; others keep SGLang's way."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.server_args import build_server_args
from sglang_worker.engine import compat
from sglang_worker.engine.compat_embedding import require_generation
from sglang_worker.errors import ConfigError, EngineStartError

SIZES = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
BERT = {"architectures": ["BertModel"], "model_type": "bert", **SIZES}
DENSE = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **SIZES}


def resolved(folder: Path, model: dict[str, Any], *flags: str) -> Any:
    (folder / "config.json").write_text(json.dumps(model))
    argv = ["--model-path", str(folder), *flags]
    config = parse_worker_config(argv, {"DYN_SGL_REFERENCE_PLATFORM": "on"})
    return compat.resolved(build_server_args(config))


def test_an_encoder_reuses_no_beginning_and_splits_no_prompt(tmp_path: Path) -> None:
    args = resolved(tmp_path, BERT, "--embedding-worker")
    assert args.disable_radix_cache is True
    assert args.chunked_prefill_size == -1


def test_a_decoder_keeps_its_cache_and_its_chunks(tmp_path: Path) -> None:
    args = resolved(tmp_path, DENSE, "--embedding-worker", "--chunked-prefill-size", "512")
    assert args.disable_radix_cache is False
    assert args.chunked_prefill_size == 512


def test_chunks_that_would_make_an_encoder_wrong_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--chunked-prefill-size 64 .*BertModel.*accepted: -1"):
        resolved(tmp_path, BERT, "--embedding-worker", "--chunked-prefill-size", "64")
    args = resolved(tmp_path, BERT, "--embedding-worker", "--chunked-prefill-size", "-1")
    assert args.chunked_prefill_size == -1


@pytest.mark.parametrize(("generates", "model"), [(True, DENSE), (False, BERT)])
def test_an_encoder_needs_the_embedding_worker(generates: bool, model: dict[str, Any]) -> None:
    loaded = SimpleNamespace(hf_config=SimpleNamespace(architectures=model["architectures"]))
    manager = SimpleNamespace(is_generation=generates, model_config=loaded)
    if generates:
        require_generation(manager)
    else:
        with pytest.raises(EngineStartError, match=r"BertModel .*add --embedding-worker"):
            require_generation(manager)
