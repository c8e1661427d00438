"""Typed access to Dynamo's preprocessed request; every fault is an `InvalidRequest` that names
the field. ``None`` and an absent field mean the same: the client did not say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from sglang_worker.requests.errors import InvalidRequest

_EMPTY: Mapping[str, Any] = {}


def section(request: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A nested object of the request, empty when absent."""
    value = request.get(name)
    if value is None:
        return _EMPTY
    if not isinstance(value, Mapping):
        raise InvalidRequest(name, f"must be an object, got {_kind(value)}")
    return value


def integer(
    source: Mapping[str, Any], field: str, low: int | None = None, high: int | None = None
) -> int | None:
    """A whole number within ``[low, high]``; true and false are not numbers."""
    value = source.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(field, f"must be an integer, got {_kind(value)}")
    if low is not None and value < low:
        raise InvalidRequest(field, f"must be at least {low}, got {value}")
    if high is not None and value > high:
        raise InvalidRequest(field, f"must be at most {high}, got {value}")
    return value


def number(source: Mapping[str, Any], field: str) -> float | None:
    """A finite number."""
    value = source.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(field, f"must be a number, got {_kind(value)}")
    if not math.isfinite(value):
        raise InvalidRequest(field, f"must be finite, got {value}")
    return value


def boolean(source: Mapping[str, Any], field: str) -> bool | None:
    value = source.get(field)
    if value is None:
        return None
    if not isinstance(value, bool):
        raise InvalidRequest(field, f"must be true or false, got {_kind(value)}")
    return value


def string(source: Mapping[str, Any], field: str) -> str | None:
    value = source.get(field)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidRequest(field, f"must be a string, got {_kind(value)}")
    return value


def sequence(source: Mapping[str, Any], field: str) -> Sequence[Any]:
    """A list, empty when absent."""
    value = source.get(field)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidRequest(field, f"must be a list, got {_kind(value)}")
    return value


def token_ids(source: Mapping[str, Any], field: str) -> list[int]:
    """A list of integers. Large prompts pass here, so the checks run at C speed."""
    values = sequence(source, field)
    if not _matches(values, list[int]) and not set(map(type, values)) <= {int}:
        position = next(i for i, value in enumerate(values) if type(value) is not int)
        raise InvalidRequest(
            f"{field}[{position}]", f"must be an integer token id, got {_kind(values[position])}"
        )
    return values if isinstance(values, list) else list(values)


def vocabulary_ids(source: Mapping[str, Any], field: str, vocab_size: int) -> list[int]:
    """`token_ids` that the vocabulary has, in one pass when nothing is wrong with them."""
    values = source.get(field)
    if isinstance(values, list) and _matches(values, _ids_below(vocab_size)):
        return values
    ids = token_ids(source, field)
    require_in_vocabulary(ids, field, vocab_size)
    return ids


def require_in_vocabulary(ids: Sequence[int], field: str, vocab_size: int) -> None:
    if not ids or _matches(ids, _ids_below(vocab_size)):
        return
    if min(ids) >= 0 and max(ids) < vocab_size:
        return
    position, bad = next((i, t) for i, t in enumerate(ids) if not 0 <= t < vocab_size)
    raise InvalidRequest(
        f"{field}[{position}]",
        f"token id {bad} is outside the vocabulary, which has {vocab_size} tokens",
    )


def _matches(values: Sequence[int], kind: Any) -> bool:
    """An eighth of the time that min, max and the items' types take; of faults it knows less."""
    try:
        msgspec.convert(values, kind)
    except msgspec.ValidationError:
        return False
    return True


@lru_cache(maxsize=8)
def _ids_below(limit: int) -> Any:
    return list[Annotated[int, msgspec.Meta(ge=0, lt=limit)]]


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return names.get(type(value), f"a {type(value).__name__}")
