"""What the model's own config.json says, read before any load; a hub name stays unknown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.config.strict_parser import one_line
from sglang_worker.config.values import expand_path
from sglang_worker.errors import ConfigError

CONFIG_FILE = "config.json"
# Where SGLang reads the model from something other than config.json.
_OTHER_LAYOUTS = ("params.json", "model_index.json")


class ModelFacts(msgspec.Struct, frozen=True):
    """``family``: kda, gdn or None as far as config.json tells."""

    architectures: tuple[str, ...]
    model_type: str | None
    family: str | None
    vocab_size: int | None
    context_length: int | None


class Unknown(msgspec.Struct, frozen=True):
    """Something that cannot be known here, and why."""

    reason: str
    value: str = "unknown"


def read_model(flag: str, path: str) -> ModelFacts | Unknown:
    """Raises ConfigError for a local folder that is no model."""
    folder = expand_path(path)
    if not os.path.isdir(folder):
        kind = "a single file" if os.path.exists(folder) else "not a local folder"
        return Unknown(reason=f"{flag} {path} is {kind}; its config.json is read when it loads")
    file = os.path.join(folder, CONFIG_FILE)
    if not os.path.isfile(file):
        if any(os.path.isfile(os.path.join(folder, name)) for name in _OTHER_LAYOUTS):
            return Unknown(reason=f"{flag} {path} has no {CONFIG_FILE}")
        raise ConfigError(f"{flag}={path!r} is no model folder: it has no {CONFIG_FILE}")
    try:
        with open(file, encoding="utf-8") as opened:
            config = json.load(opened)
    except (OSError, ValueError, RecursionError) as failure:
        raise ConfigError(one_line(f"{flag}: cannot read {file!r}: {failure}")) from failure
    if not isinstance(config, Mapping):
        raise ConfigError(f"{flag}: {file!r} must hold a JSON object")
    return facts_of(config)


def facts_of(config: Mapping[str, Any]) -> ModelFacts:
    text = config.get("text_config")
    text = {**config, **text} if isinstance(text, Mapping) else config
    names = config.get("architectures")
    return ModelFacts(
        architectures=tuple(map(str, names)) if isinstance(names, list) else (),
        model_type=str(config["model_type"]) if config.get("model_type") else None,
        family=_family(text),
        vocab_size=_integer(text.get("vocab_size")),
        context_length=_integer(text.get("max_position_embeddings")),
    )


def _family(text: Mapping[str, Any]) -> str | None:
    linear = text.get("linear_attn_config")
    if isinstance(linear, Mapping) and linear.get("kda_layers"):
        return "kda"
    # Qwen3-Next and Qwen3.5 name their gated delta rule by its head counts.
    return "gdn" if text.get("linear_num_value_heads") else None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
