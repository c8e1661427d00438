"""Tells a local path from a hub name, so that a missing folder is found before any load."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from sglang_worker.config.values import expand_path
from sglang_worker.errors import ConfigError

PATH_DESTS = (
    ("model_path", "--model-path"),
    ("tokenizer_path", "--tokenizer-path"),
    ("speculative_draft_model_path", "--speculative-draft-model-path"),
)


def looks_like_path(value: str) -> bool:
    """Absolute, dotted, home or deep paths; and ``a/b`` where the folder ``a`` is here."""
    if "://" in value:
        return False
    if value.startswith(("/", ".", "~")) or "\\" in value or value.count("/") > 1:
        return True
    head, slash, _ = value.partition("/")
    return bool(slash) and _exists(head)


def check_paths(explicit: Mapping[str, Any]) -> None:
    """Raise ConfigError for a model, tokenizer or draft path that is not there."""
    for dest, flag in PATH_DESTS:
        value = explicit.get(dest)
        if value is None:
            continue
        if not str(value).strip():
            raise ConfigError(f"{flag} is empty; accepted: a local folder or a model name")
        if looks_like_path(str(value)) and not _exists(expand_path(str(value))):
            raise ConfigError(
                f"{flag}={value!r} does not exist; accepted: a local folder, or a model name "
                "such as org/name"
            )


def _exists(path: str) -> bool:
    try:
        return os.path.exists(path)
    except ValueError:
        return False
