"""The operator's health check payload: a JSON object, or ``@file`` with one."""

from __future__ import annotations

import json
from typing import Any

from sglang_worker.config.strict_parser import one_line
from sglang_worker.config.values import expand_path
from sglang_worker.errors import ConfigError


def parse_payload(source: str, text: str) -> dict[str, Any]:
    """Raises ConfigError naming ``source``; reads the file of ``@path``."""
    content = _read(source, text[1:]) if text.startswith("@") else text
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError) as failure:
        raise ConfigError(one_line(f"{source} is no JSON: {failure}")) from None
    if not isinstance(payload, dict):
        raise ConfigError(
            f"{source} must be a JSON object or @file with one, not {type(payload).__name__}"
        )
    return payload


def _read(source: str, path: str) -> str:
    try:
        with open(expand_path(path), encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as failure:
        raise ConfigError(one_line(f"{source}: cannot read {path!r}: {failure}")) from None
