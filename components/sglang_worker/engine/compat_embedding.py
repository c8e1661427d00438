"""SGLang's internals for embeddings (read in 0.5.23: ``configs/embedding_model_spec.py``,
``managers/io_struct.py`` ``EmbeddingReqInput``, ``managers/tokenizer_manager.py``)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.engine import compat
from sglang_worker.errors import EngineStartError
from sglang_worker.requests.embedding import EmbeddingLimits
from sglang_worker.requests.errors import RefusedByEngine
from sglang_worker.requests.limits import EngineLimits

# Encoders that SGLang releases without a model specification, or with an incomplete one, run
# with attention in both directions.
_ENCODERS = ("BertModel", "BertForSequenceClassification", "Contriever", "XLMRobertaModel")
# Resolved fields that keep a prompt whole, and with them what each would otherwise do to it.
WHOLE_PROMPT: Mapping[str, Any] = {"disable_radix_cache": True, "chunked_prefill_size": -1}
POOLING_FILE = os.path.join("1_Pooling", "config.json")


class EmbeddingModel(msgspec.Struct, frozen=True):
    """``pooling``: cls, last or mean where SGLang says so, else None."""

    architecture: str
    bidirectional: bool
    classifies: bool
    pooling: str | None


def model_of(model_config: Any) -> EmbeddingModel:
    names = getattr(model_config.hf_config, "architectures", None) or ("unknown",)
    spec = getattr(model_config, "embedding_model_spec", None)
    pooling = getattr(getattr(spec, "pooling", None), "value", None)
    return EmbeddingModel(
        architecture=str(names[0]),
        bidirectional=bool(getattr(spec, "bidirectional_attention", False))
        or names[0] in _ENCODERS,
        classifies="SequenceClassification" in names[0],
        pooling=pooling if pooling in ("cls", "last", "mean") else None,
    )


def model_config(server_args: Any) -> Any:
    """SGLang's reading of the model's configuration; the engine makes the same one again."""
    from sglang.srt.configs.model_config import ModelConfig

    return ModelConfig.from_server_args(server_args)


def split_prompts(server_args: Any) -> dict[str, Any]:
    """Fields of `WHOLE_PROMPT` that SGLang resolved to values that split prompts or reuse their
    beginnings. Harmless for causal attention only."""
    args = compat.resolved(server_args)
    return {
        name: value for name, value in WHOLE_PROMPT.items() if getattr(args, name, value) != value
    }


def declared_pooling(model_path: str) -> str | None:
    """What the checkpoint's own sentence-transformers file asks for; None without one."""
    try:
        with open(os.path.join(model_path, POOLING_FILE), encoding="utf-8") as file:
            modes = json.load(file)
    except (OSError, ValueError):
        return None
    named = {
        "pooling_mode_cls_token": "cls",
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_lasttoken": "last",
    }
    chosen = [name for key, name in named.items() if isinstance(modes, dict) and modes.get(key)]
    return chosen[0] if len(chosen) == 1 else None


def require_generation(tokenizer_manager: Any) -> None:
    """Raises EngineStartError for an encoder, which SGLang runs for embeddings without being
    told to: it would answer no request for text."""
    if not tokenizer_manager.is_generation:
        architecture = model_of(tokenizer_manager.model_config).architecture
        raise EngineStartError(f"{architecture} makes embeddings only; add --embedding-worker")


def read_embedding_limits(tokenizer_manager: Any, engine: EngineLimits) -> EmbeddingLimits:
    """Raises EngineStartError when SGLang runs the model for something else than embeddings."""
    config = tokenizer_manager.model_config
    if tokenizer_manager.is_generation:
        raise EngineStartError(
            f"SGLang serves {model_of(config).architecture} for generation, not for embeddings"
        )
    allowed = tuple(getattr(config, "matryoshka_dimensions", None) or ())
    return EmbeddingLimits(
        engine=engine,
        dimensions=int(config.hidden_size),
        matryoshka=bool(getattr(config, "is_matryoshka", False)),
        matryoshka_dimensions=allowed,
    )


def new_batch(fields: Mapping[str, Any], request_ids: Sequence[str]) -> tuple[Any, set[str]]:
    """SGLang's request for one batch, with an id for each of its inputs.

    Always a list, also for one input: prompts of token ids reach the scheduler as one message and
    so become one batch, and the answer is a list in the order of the inputs.
    """
    from sglang.srt.managers.io_struct import EmbeddingReqInput

    return EmbeddingReqInput(rid=list(request_ids), **fields), set(request_ids)


def refusal(error: Exception) -> RefusedByEngine | None:
    """The scheduler's refusal with a status other than 400, which SGLang raises as FastAPI's."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return None
    return RefusedByEngine(status, str(getattr(error, "detail", "") or error))


def tokenize(tokenizer_manager: Any, texts: Sequence[str]) -> list[list[int]]:
    """Token ids exactly as SGLang's own server makes them. Blocking; one thread at a time."""
    call = tokenizer_manager._tokenize_texts(list(texts))
    try:
        call.send(None)
    except StopIteration as done:
        ids, _ = done.value
        return [list(one) for one in ids]
    call.close()
    raise RuntimeError("SGLang's tokenization of a list waits for something")
