"""Checkpoints with drawn weights, one per kind of model, at a size for the machine.

Their configurations are the demo's, for a GPU with the head sizes that its kernels are made for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from sglang_worker.demo import configs
from sglang_worker.demo.vocabulary import PAD_ID, VOCABULARY_SIZE

from benchmarks.gpu_rows.tokenizer import add_tokenizer

SEED = 13
# Large enough that the best token stands out of what bf16 rounds away, most of the time.
LOGIT_SPREAD = 3.0
# Of models that do not normalise queries and keys: each token attends to few others, so that the
# first one's vector, which is the text's, depends on the rest.
ATTENTION_SPREAD = 2.0
LAYERS = 4
_HIDDEN, _HEAD = 512, 128
_WIDE: dict[str, Any] = {
    "hidden_size": _HIDDEN,
    "intermediate_size": 2 * _HIDDEN,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": _HEAD,
    "num_hidden_layers": LAYERS,
    "layer_types": ["full_attention"] * LAYERS,
}
_WIDE_MROPE = {"type": "mrope", "rope_type": "default", "mrope_section": [16, 24, 24]}
_WIDE_VISION = {
    "depth": LAYERS,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_heads": 4,
    "out_hidden_size": _HIDDEN,
    "fullatt_block_indexes": [1, 3],
}
_BERT: dict[str, Any] = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": VOCABULARY_SIZE,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "position_embedding_type": "absolute",
    "type_vocab_size": 2,
    "pad_token_id": PAD_ID,
}
# As transformers names what SGLang reads under the names of the published checkpoints.
_RENAMED = {"model.visual.": "visual.", "model.language_model.": "model."}


class Recipe(msgspec.Struct, frozen=True):
    """``model_class``: of transformers, whose parameters are drawn."""

    model_class: str
    dry: Mapping[str, Any]
    wide: Mapping[str, Any]
    files: Mapping[str, Mapping[str, Any]] = {}


RECIPES = {
    "decoder": Recipe("Qwen3ForCausalLM", configs.DENSE, configs.DENSE | _WIDE),
    "encoder": Recipe(
        "BertModel",
        _BERT | {"hidden_size": 128, "intermediate_size": 256},
        _BERT | {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": LAYERS},
    ),
    "dllm": Recipe("Qwen3ForCausalLM", configs.DLLM, configs.DLLM | _WIDE),
    "vlm": Recipe(
        "Qwen2_5_VLForConditionalGeneration",
        configs.VLM,
        configs.VLM
        | {
            "hidden_size": _HIDDEN,
            "text_config": configs.VLM["text_config"] | _WIDE | {"rope_scaling": _WIDE_MROPE},
            "vision_config": configs.VLM["vision_config"] | _WIDE_VISION,
        },
        {"preprocessor_config.json": configs.VLM_PREPROCESSOR},
    ),
}
# The vectors of this kind may be shortened.
_SHORTENED = {"decoder": {"is_matryoshka": True}}


def write_models(scratch: Path, kinds: Iterable[str], *, dry_run: bool) -> dict[str, Path]:
    """float32 for a dry run, else bfloat16; the demo's tokenizer, whose ids all fit."""
    return {kind: _write(kind, scratch, dry_run) for kind in dict.fromkeys(kinds)}


def _write(kind: str, scratch: Path, dry_run: bool) -> Path:
    from safetensors.torch import save_file

    recipe, target = RECIPES[kind], scratch / "models" / kind
    target.mkdir(parents=True)
    dtype = "float32" if dry_run else "bfloat16"
    shape = recipe.dry if dry_run else recipe.wide
    config = _with_dtype({**shape, **_SHORTENED.get(kind, {})}, dtype)
    for name, content in {"config.json": config, **recipe.files}.items():
        (target / name).write_text(json.dumps(content, indent=1))
    tensors = _tensors(recipe.model_class, target, dtype)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    return add_tokenizer(target, scratch)


def _with_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    parts = {key: _with_dtype(dict(value), dtype) for key, value in _parts(config)}
    return {**config, **parts, "dtype": dtype, "torch_dtype": dtype}


def _parts(config: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(key, config[key]) for key in ("text_config", "vision_config") if key in config]


def _tensors(model_class: str, folder: Path, dtype: str) -> dict[str, Any]:
    """Drawn for every parameter that transformers gives this class."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        shapes = getattr(transformers, model_class)(config).state_dict()
    draw = torch.Generator().manual_seed(SEED)
    return {
        _renamed(name): _drawn(name, tuple(one.shape), draw).to(getattr(torch, dtype))
        for name, one in shapes.items()
    }


def _renamed(name: str) -> str:
    for old, new in _RENAMED.items():
        if name.startswith(old):
            return new + name[len(old) :]
    return name


def _drawn(name: str, shape: tuple[int, ...], draw: Any) -> Any:
    import torch

    noise = torch.randn(shape, generator=draw)
    if len(shape) == 1:
        return noise * 0.1 + (0.0 if name.endswith("bias") else 1.0)
    if "embed" in name and len(shape) == 2:
        return noise
    noise *= _spread(name) / math.sqrt(math.prod(shape[1:]))
    if name == "lm_head.weight":
        # What the tokenizer does not have is never the best, so that answers are text.
        noise[VOCABULARY_SIZE:] = 0.0
    return noise


def _spread(name: str) -> float:
    if name == "lm_head.weight":
        return LOGIT_SPREAD
    return ATTENTION_SPREAD if name.endswith(("query.weight", "key.weight")) else 1.0
