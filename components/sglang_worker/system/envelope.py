"""Results of SGLang methods as JSON: total, so that no result can break an answer."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping, Set
from enum import Enum
from typing import Any

import msgspec

MAX_DEPTH = 64
_TUPLE_KEYS = ("success", "message", "num_paused_requests")
_SAFE_INT = 1 << 63


def envelope(result: Any) -> dict[str, Any]:
    """A method's result as the JSON object that a configured route answers.

    None is ``{"status": "ok"}``; a plain 2- or 3-tuple is success, message and paused count; an
    object stays as it is; anything else is under ``result``.
    """
    if result is None:
        return {"status": "ok"}
    if type(result) is tuple and len(result) in (2, 3):
        return {key: to_json(item) for key, item in zip(_TUPLE_KEYS, result, strict=False)}
    value = to_json(result)
    return value if isinstance(value, dict) else {"result": value}


def encode(value: Any) -> bytes:
    """Compact JSON of what `to_json` made."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def to_json(value: Any, depth: int = 0) -> Any:
    """``value`` in JSON's own types. NaN and infinities are null; the unknown is its text."""
    if depth > MAX_DEPTH:
        return "<nested too deeply>"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return to_json(value.value, depth + 1)
    if isinstance(value, str):
        # Lone surrogates would make the answer no UTF-8.
        return str(value).encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(value) if -_SAFE_INT <= value < 2 * _SAFE_INT else str(int(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(bytes(value)).decode()
    if isinstance(value, Mapping):
        return {_key(key): to_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, Set)):
        return [to_json(item, depth + 1) for item in value]
    return _object(value, depth)


def _object(value: Any, depth: int) -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            name: to_json(getattr(value, name, None), depth + 1)
            for name in type(value).__struct_fields__
        }
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: to_json(getattr(value, field.name, None), depth + 1)
            for field in dataclasses.fields(value)
        }
    # Tensors and arrays, told by what they can do: torch is not imported here.
    shape = getattr(value, "shape", None)
    to_list = getattr(value, "tolist", None)
    if shape is not None and callable(to_list):
        return to_json(to_list(), depth + 1)
    return str(value)


def _key(key: Any) -> str:
    if isinstance(key, Enum):
        key = key.value
    return str(key).encode("utf-8", "replace").decode()
