"""JSON values to annotated Python values, strictly: what does not fit is named, never passed on.

SGLang's schedulers decode their messages by type and die on a wrong one, so the check belongs
here. Covers what annotations of SGLang's requests use: builtins, containers, unions, literals,
enums, dataclasses and msgspec structs; a class that JSON cannot express never fits.
"""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import msgspec

from sglang_worker.system.json_body import json_type


class Mismatch(Exception):
    """``where`` is the path inside the value, ``expected`` the type in JSON words."""

    def __init__(self, where: str, expected: str, value: object) -> None:
        super().__init__(f"{where}: expected {expected}, not {json_type(value)}")
        self.where = where


def convert(value: Any, annotation: Any, where: str) -> Any:
    """``value`` as ``annotation`` wants it. Raises Mismatch naming ``where``."""
    annotation = _plain(annotation)
    if annotation is Any or isinstance(annotation, (str, typing.TypeVar)):
        return value
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        return _union(value, typing.get_args(annotation), where)
    if origin is typing.Literal:
        if any(value == choice and type(value) is type(choice) for choice in annotation.__args__):
            return value
        choices = ", ".join(repr(choice) for choice in annotation.__args__)
        raise Mismatch(where, f"one of {choices}", value)
    if builtin := _BUILTINS.get(annotation):
        return builtin(value, where)
    if container := _container(origin or annotation):
        return container(value, typing.get_args(annotation), where)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(value, annotation, where)
    if is_record(annotation):
        return build_record(annotation, value, where)
    raise Mismatch(where, f"a value that JSON cannot express ({describe(annotation)})", value)


def is_record(annotation: Any) -> bool:
    """A dataclass or a msgspec struct."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation) or issubclass(annotation, msgspec.Struct)
    )


class RecordField(msgspec.Struct, frozen=True):
    annotation: Any
    required: bool


def record_fields(record: Any) -> dict[str, RecordField]:
    """The constructor's fields by name."""
    if issubclass(record, msgspec.Struct):
        return {
            field.name: RecordField(field.type, field.required)
            for field in msgspec.structs.fields(record)
        }
    try:
        hints = typing.get_type_hints(record)
    except (NameError, TypeError):
        # Names that only type checkers see: such fields are taken as they come.
        hints = {}
    return {
        field.name: RecordField(
            hints.get(field.name, Any),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(record)
        if field.init
    }


def build_record(record: type, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise Mismatch(where, "an object", value)
    fields = record_fields(record)
    for name in value:
        if name not in fields:
            raise Mismatch(f"{where}.{name}", "no such field", value[name])
    for name, field in fields.items():
        if field.required and name not in value:
            raise Mismatch(f"{where}.{name}", "a value", None)
    return record(
        **{
            name: convert(item, fields[name].annotation, f"{where}.{name}")
            for name, item in value.items()
        }
    )


def describe(annotation: Any) -> str:
    """A short name of an annotation for messages."""
    return getattr(annotation, "__name__", None) or str(annotation).replace("typing.", "")


def _plain(annotation: Any) -> Any:
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if isinstance(annotation, typing.NewType):
        return _plain(annotation.__supertype__)
    return type(None) if annotation is None else annotation


def _union(value: Any, choices: tuple[Any, ...], where: str) -> Any:
    # A string fits `bytes` too (base64), so the exact builtin goes first.
    inside: list[Mismatch] = []
    for choice in sorted(choices, key=lambda choice: _plain(choice) is not type(value)):
        try:
            return convert(value, choice, where)
        except Mismatch as mismatch:
            if mismatch.where != where:
                inside.append(mismatch)
    if inside and len({fault.where for fault in inside}) == 1:
        # One choice took the value itself and stumbled over something in it: that is the fault.
        raise inside[0]
    expected = " or ".join(dict.fromkeys(map(_json_name, choices)))
    raise Mismatch(where, expected, value)


def _json_name(annotation: Any) -> str:
    annotation = _plain(annotation)
    if annotation is type(None):
        return "null"
    known = _NAMES.get(annotation) or _NAMES.get(typing.get_origin(annotation))
    return known or describe(annotation)


def _exact(expected: type) -> Callable[[Any, str], Any]:
    def check(value: Any, where: str) -> Any:
        if type(value) is not expected:
            raise Mismatch(where, _NAMES[expected], value)
        return value

    return check


def _float(value: Any, where: str) -> float:
    if type(value) not in (int, float):
        raise Mismatch(where, "a number", value)
    return float(value)


def _bytes(value: Any, where: str) -> bytes:
    if not isinstance(value, str):
        raise Mismatch(where, "a base64 string", value)
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise Mismatch(where, "valid base64", value) from None


def _object(value: Any, _where: str) -> Any:
    return value


def _list(value: Any, arguments: tuple[Any, ...], where: str) -> list[Any]:
    if not isinstance(value, list):
        raise Mismatch(where, "an array", value)
    item = arguments[0] if arguments else Any
    return [convert(one, item, f"{where}[{index}]") for index, one in enumerate(value)]


def _set(value: Any, arguments: tuple[Any, ...], where: str) -> set[Any]:
    try:
        return set(_list(value, arguments, where))
    except TypeError:
        raise Mismatch(where, "an array of plain values", value) from None


def _tuple(value: Any, arguments: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not arguments or arguments[-1] is Ellipsis:
        return tuple(_list(value, arguments[:1], where))
    if not isinstance(value, list) or len(value) != len(arguments):
        raise Mismatch(where, f"an array of {len(arguments)}", value)
    return tuple(
        convert(one, item, f"{where}[{index}]")
        for index, (one, item) in enumerate(zip(value, arguments, strict=True))
    )


def _mapping(value: Any, arguments: tuple[Any, ...], where: str) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise Mismatch(where, "an object", value)
    key_type, item_type = arguments if len(arguments) == 2 else (Any, Any)
    return {
        _key(key, key_type, where): convert(item, item_type, f"{where}.{key}")
        for key, item in value.items()
    }


def _key(key: str, annotation: Any, where: str) -> Any:
    """JSON keys are strings; integer keys are written as such."""
    if _plain(annotation) is int:
        try:
            return int(key)
        except ValueError:
            raise Mismatch(where, "integer keys", key) from None
    return convert(key, annotation, f"{where} key {key!r}")


def _enum(value: Any, annotation: type[Enum], where: str) -> Enum:
    for member in annotation:
        if value == member.value and type(value) is type(member.value):
            return member
    choices = ", ".join(repr(member.value) for member in annotation)
    raise Mismatch(where, f"one of {choices}", value)


def _container(origin: Any) -> Callable[[Any, tuple[Any, ...], str], Any] | None:
    return _CONTAINERS.get(origin)


_NAMES: dict[Any, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a number",
    str: "a string",
    bytes: "a base64 string",
    type(None): "null",
    list: "an array",
    tuple: "an array",
    dict: "an object",
}
_BUILTINS: dict[Any, Callable[[Any, str], Any]] = {
    bool: _exact(bool),
    int: _exact(int),
    str: _exact(str),
    type(None): _exact(type(None)),
    float: _float,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    object: _object,
}
_CONTAINERS: dict[Any, Callable[[Any, tuple[Any, ...], str], Any]] = {
    list: _list,
    collections.abc.Sequence: _list,
    collections.abc.Iterable: _list,
    tuple: _tuple,
    set: _set,
    frozenset: _set,
    dict: _mapping,
    collections.abc.Mapping: _mapping,
}
