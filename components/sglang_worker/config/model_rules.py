"""Rules that need config.json: checked before the engine starts and by ``--check=model``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.config.model_facts import ModelFacts, Unknown, read_model
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.errors import ConfigError

DRAFT_FLAG = "--speculative-draft-model-path"


class ModelPair(msgspec.Struct, frozen=True):
    """``draft`` None: no speculation, or a draft that comes with the target's own weights."""

    target: ModelFacts | Unknown
    draft: ModelFacts | Unknown | None = None


def check_models(config: WorkerConfig) -> ModelPair:
    """Read the target's and the draft's config.json; raises ConfigError for a broken rule."""
    explicit = config.engine.explicit
    target = read_model("--model-path", str(explicit["model_path"]))
    draft_path = explicit.get("speculative_draft_model_path")
    draft = read_model(DRAFT_FLAG, str(draft_path)) if draft_path else None
    pair = ModelPair(target=target, draft=draft)
    _kda_tree_verify(pair, explicit)
    _shared_vocabulary(pair, explicit)
    return pair


def verify_backend(explicit: Mapping[str, Any]) -> tuple[str | None, str]:
    """The verify backend that the flags choose (None: SGLang's default) and the flag that does."""
    for dest, flag in (
        ("linear_attn_verify_backend", "--linear-attn-verify-backend"),
        ("linear_attn_decode_backend", "--linear-attn-decode-backend"),
        ("linear_attn_backend", "--linear-attn-backend"),
    ):
        if explicit.get(dest) is not None:
            return str(explicit[dest]), flag
    return None, "--linear-attn-verify-backend"


def _kda_tree_verify(pair: ModelPair, explicit: Mapping[str, Any]) -> None:
    topk = explicit.get("speculative_eagle_topk") or 1
    backend, flag = verify_backend(explicit)
    if not explicit.get("speculative_algorithm") or topk <= 1 or backend != "flashinfer":
        return
    if isinstance(pair.target, ModelFacts) and pair.target.family == "kda":
        raise ConfigError(
            f"{flag} flashinfer with --speculative-eagle-topk {topk} is refused for a KDA model: "
            "its FlashInfer verify takes no trees; accepted: --speculative-eagle-topk 1, or "
            "--linear-attn-verify-backend triton"
        )


def _shared_vocabulary(pair: ModelPair, explicit: Mapping[str, Any]) -> None:
    """A STANDALONE draft proposes the target's token ids."""
    target, draft = pair.target, pair.draft
    if str(explicit.get("speculative_algorithm")).upper() != "STANDALONE":
        return
    if not isinstance(target, ModelFacts) or not isinstance(draft, ModelFacts):
        return
    if target.vocab_size and draft.vocab_size and draft.vocab_size > target.vocab_size:
        raise ConfigError(
            f"{DRAFT_FLAG} has a vocabulary of {draft.vocab_size} tokens, the target one of "
            f"{target.vocab_size}: a STANDALONE draft must share the target's vocabulary"
        )
