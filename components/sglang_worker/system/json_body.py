"""Request bodies: one JSON object, small enough in depth and numbers for every later step."""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_worker.system.faults import BadRequest

MAX_DEPTH = 64
# SGLang's own messages travel as msgpack, whose integers end here.
_MIN_INT = -(1 << 63)
_MAX_INT = (1 << 64) - 1


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in ``body``; an empty body is ``{}``. Raises BadRequest."""
    if not body:
        return {}
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise BadRequest(f"the request body is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    if not isinstance(value, dict):
        raise BadRequest(f"the request body must be a JSON object, not {json_type(value)}")
    _check(value, "", 0)
    return value


def json_type(value: object) -> str:
    """The JSON name of a decoded value's type, for messages."""
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a string"}
    return names.get(type(value), "an array" if isinstance(value, list) else "an object")


def _check(value: Any, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(value, dict):
        for key, item in value.items():
            _check(item, f"{where}.{key}" if where else key, depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)
    elif type(value) is int and not _MIN_INT <= value <= _MAX_INT:
        raise BadRequest(f"{where}: the integer is out of the 64-bit range")


def _too_deep() -> BadRequest:
    return BadRequest(f"the request body is nested deeper than {MAX_DEPTH} levels")
