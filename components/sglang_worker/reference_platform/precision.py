"""Which number types the platform uses where SGLang's choice presumes a GPU.

SGLang turns a float32 checkpoint into float16 under ``--dtype auto`` and keeps convolution
windows in bfloat16 whatever the model's type. On a CPU float32 is the natural type of a float32
checkpoint, and windows must have the type of the activations that are stored into them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Any

import torch

_TYPES: Mapping[str, torch.dtype] = {
    "float32": torch.float32,
    "float": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "half": torch.float16,
}
_WINDOW_TYPE_VARIABLE = "SGLANG_MAMBA_CONV_DTYPE"


def checkpoint_type(model_path: str) -> str | None:
    """The type that a local checkpoint's config.json names, or None when it names none."""
    try:
        with open(os.path.join(model_path, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
    except (OSError, ValueError):
        return None
    for section in (config, config.get("text_config") or {}):
        name = section.get("dtype") or section.get("torch_dtype")
        if name in _TYPES:
            return str(name)
    return None


def window_type(state_type: Any, config: Any = None) -> Any:
    """AFTER hook of SGLang's ``mamba2_state_dtype``: windows in the served model's type.

    The operator's own ``SGLANG_MAMBA_CONV_DTYPE`` wins.
    """
    if os.environ.get(_WINDOW_TYPE_VARIABLE):
        return state_type
    chosen = _TYPES.get(str(_served_type()))
    if chosen is None:
        return state_type
    return dataclasses.replace(state_type, conv=chosen)


def _served_type() -> Any:
    from sglang.srt.runtime_context import get_model

    try:
        return get_model().dtype
    except (AttributeError, ValueError, RuntimeError):
        # Nothing published yet: a configuration object that is inspected outside an engine.
        return None
