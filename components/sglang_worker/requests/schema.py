"""Checks on a JSON schema that a grammar compiler would not survive or would not explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from sglang_worker.requests.errors import InvalidRequest

MAX_DEPTH = 64

_TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
# Keywords that hand the same JSON value on: a reference cycle through them consumes no input.
_SAME_VALUE = ("allOf", "anyOf", "oneOf")


def check_schema(field: str, schema: Any) -> None:
    """Raise `InvalidRequest` for a schema that is no schema, too deep, or loops without end."""
    if not isinstance(schema, Mapping | bool):
        raise InvalidRequest(field, "must be an object")
    if isinstance(schema, bool):
        return
    _check_shape(field, schema)
    _check_references(field, schema)


def _check_shape(field: str, root: Mapping[str, Any]) -> None:
    pending: list[tuple[Any, int]] = [(root, 1)]
    while pending:
        node, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise InvalidRequest(field, f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, Mapping):
            pending.extend((child, depth + 1) for child in node.values())
        elif isinstance(node, list):
            pending.extend((child, depth + 1) for child in node)
    kind = root.get("type")
    kinds = kind if isinstance(kind, list) else [] if kind is None else [kind]
    for name in kinds:
        if not isinstance(name, str) or name not in _TYPES:
            raise InvalidRequest(field, f"type {name!r} is none of {', '.join(sorted(_TYPES))}")


def _check_references(field: str, root: Mapping[str, Any]) -> None:
    """Every local reference resolves, and none leads back to itself without consuming input."""
    for node in _schemas(root):
        if (reference := _local_reference(node)) is not None:
            resolve(field, root, reference)
    done: set[int] = set()
    for node in _schemas(root):
        _walk_same_value(field, root, node, done)


def _walk_same_value(
    field: str, root: Mapping[str, Any], start: Mapping[str, Any], done: set[int]
) -> None:
    """Depth-first over edges that stay on one JSON value; a node met again on its own path is a
    cycle."""
    on_path: set[int] = set()
    stack: list[tuple[Mapping[str, Any], bool]] = [(start, False)]
    while stack:
        node, leaving = stack.pop()
        key = id(node)
        if leaving:
            on_path.discard(key)
            done.add(key)
            continue
        if key in done:
            continue
        if key in on_path:
            raise InvalidRequest(field, "has a reference cycle that consumes no input")
        on_path.add(key)
        stack.append((node, True))
        for child in _same_value_children(field, root, node):
            if id(child) in on_path:
                raise InvalidRequest(field, "has a reference cycle that consumes no input")
            stack.append((child, False))


def _same_value_children(
    field: str, root: Mapping[str, Any], node: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    if (reference := _local_reference(node)) is not None:
        yield resolve(field, root, reference)
    for keyword in _SAME_VALUE:
        branches = node.get(keyword)
        if isinstance(branches, list):
            yield from (branch for branch in branches if isinstance(branch, Mapping))


def _local_reference(node: Mapping[str, Any]) -> str | None:
    """The node's ``$ref`` when it is a pointer into this document; anchors and other documents
    are left to the grammar backend."""
    reference = node.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        return reference
    return None


def resolve(field: str, root: Mapping[str, Any], reference: str) -> Mapping[str, Any]:
    """The object that a local JSON pointer names."""
    target: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, Mapping) and name in target:
            target = target[name]
        elif isinstance(target, list) and name.isdecimal() and int(name) < len(target):
            target = target[int(name)]
        else:
            raise InvalidRequest(field, f"reference {reference!r} leads nowhere")
    if isinstance(target, bool):
        return {}
    if not isinstance(target, Mapping):
        raise InvalidRequest(field, f"reference {reference!r} does not lead to a schema")
    return target


def _schemas(root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    pending: list[Any] = [root]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            yield node
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
