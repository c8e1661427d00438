"""The grammar of configurable routes: ``<path>[=<method>][:engine|tm]``.

Parsing is pure and total: every text is either a `RouteDescriptor` or a `ConfigError` that names
the descriptor and says what is accepted. Whether a method exists is a matter of `binding`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable
from typing import Literal

from sglang_worker.errors import ConfigError
from sglang_worker.system.descriptor import RouteDescriptor

FORM = "<path>[=<method>][:engine|tm]"
RESERVED_PATHS = frozenset({"status", "drain", "resume", "openapi.json"})
RESERVED_PREFIX = "control/"
SERVER_INFO_PATH = "server_info"
SERVER_INFO_METHOD = "get_server_info"

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_TARGETS: dict[str, Literal["engine", "tm"]] = {"engine": "engine", "tm": "tm"}


def parse_descriptors(texts: Iterable[str]) -> tuple[RouteDescriptor, ...]:
    """Parse the united list of flag and variable; the first fault raises `ConfigError`."""
    seen: dict[str, RouteDescriptor] = {}
    for text in texts:
        descriptor = parse_descriptor(text)
        earlier = seen.get(descriptor.path)
        if earlier is not None:
            raise _fault(text, f"path {descriptor.path!r} is already taken by {earlier.text!r}")
        seen[descriptor.path] = descriptor
    return tuple(seen.values())


def parse_descriptor(text: str) -> RouteDescriptor:
    """Parse one descriptor; raises `ConfigError` naming it."""
    if not text:
        raise _fault(text, f"is empty; write {FORM}")
    if any(character.isspace() for character in text):
        raise _fault(text, "contains whitespace; repeat the flag for several routes")
    rest, target = _split_target(text)
    path, method = _split_method(text, rest)
    _check_path(text, path)
    _check_method(text, method)
    _check_reserved(text, path, method, target)
    return RouteDescriptor(path=path, method=method, target=target, text=text)


def _split_target(text: str) -> tuple[str, Literal["engine", "tm"]]:
    parts = text.split(":")
    if len(parts) > 2:
        raise _fault(text, f"has more than one ':'; write {FORM}")
    if len(parts) == 1:
        return text, "engine"
    target = _TARGETS.get(parts[1])
    if target is None:
        raise _fault(text, f"unknown target {parts[1]!r}; accepted are 'engine' and 'tm'")
    return parts[0], target


def _split_method(text: str, rest: str) -> tuple[str, str]:
    parts = rest.split("=")
    if len(parts) > 2:
        raise _fault(text, f"has more than one '='; write {FORM}")
    path = parts[0]
    if len(parts) == 2:
        return path, parts[1]
    # Only a path that is itself a method name may leave the method out.
    if path and not path.isidentifier():
        _check_path(text, path)
        raise _fault(text, f"path {path!r} is no method name; write {path}=<method>")
    return path, path


def _check_path(text: str, path: str) -> None:
    if not path:
        raise _fault(text, f"has no path; write {FORM}")
    for segment in path.split("/"):
        if not segment:
            raise _fault(text, "has an empty path segment; '/' only separates segments")
        if _SEGMENT.fullmatch(segment) is None:
            raise _fault(
                text,
                f"path segment {segment!r} is not accepted; use letters, digits, '.', '_' and '-', "
                "starting with a letter or digit",
            )


def _check_method(text: str, method: str) -> None:
    if not method:
        raise _fault(text, "names no method after '='")
    if method.startswith("_"):
        raise _fault(text, f"method {method!r} is private; only public methods can be exposed")
    if not method.isidentifier() or keyword.iskeyword(method):
        raise _fault(text, f"method {method!r} is no Python method name")


def _check_reserved(text: str, path: str, method: str, target: str) -> None:
    if path in RESERVED_PATHS or path.startswith(RESERVED_PREFIX):
        raise _fault(text, f"path {path!r} is reserved for the worker's own routes")
    if path == SERVER_INFO_PATH and (method != SERVER_INFO_METHOD or target != "engine"):
        raise _fault(
            text, f"path {path!r} is built in and can only be {SERVER_INFO_METHOD}; choose another"
        )


def _fault(text: str, reason: str) -> ConfigError:
    return ConfigError(f"engine route {text!r}: {reason}")
