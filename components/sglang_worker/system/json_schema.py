"""JSON schemas of what routes accept, for the OpenAPI document; as loose as an annotation is."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

from sglang_worker.system.conversion import RecordField, is_record, record_fields

_SIMPLE: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
    float: {"type": "number"},
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    type(None): {"type": "null"},
}
_ARRAYS = (list, tuple, set, frozenset, collections.abc.Sequence)
_MAX_DEPTH = 4


def object_schema(fields: Mapping[str, RecordField], *, accepts_more: bool) -> dict[str, Any]:
    """An object with these fields."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: schema_of(field.annotation) for name, field in fields.items()},
        "additionalProperties": accepts_more,
    }
    if required := [name for name, field in fields.items() if field.required]:
        schema["required"] = required
    return schema


def schema_of(annotation: Any, depth: int = 0) -> dict[str, Any]:
    """``{}`` (anything) where the annotation says no more."""
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if annotation is None:
        annotation = type(None)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if depth > _MAX_DEPTH:
        return {}
    if annotation in _SIMPLE:
        return dict(_SIMPLE[annotation])
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(choice, depth + 1) for choice in arguments]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if (origin or annotation) in _ARRAYS:
        items = arguments[:1] if origin is not tuple else ()
        return {"type": "array", **({"items": schema_of(items[0], depth + 1)} if items else {})}
    if (origin or annotation) in (dict, collections.abc.Mapping):
        return {"type": "object"}
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return {"enum": [member.value for member in annotation]}
    if is_record(annotation):
        fields = record_fields(annotation)
        return object_schema(fields, accepts_more=False) if depth < _MAX_DEPTH else {}
    return {}
