"""Guided decoding: one constraint of the client becomes one grammar parameter of SGLang."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.schema import check_schema
from sglang_worker.requests.validation import section

_REGEX_SPECIAL = frozenset("\\.^$*+?{}[]()|/")
MAX_GRAMMAR_CHARS = 1 << 18


def guided_fields(options: Mapping[str, Any], limits: EngineLimits) -> dict[str, str]:
    """SGLang's ``json_schema``, ``regex``, ``ebnf`` or ``structural_tag``; empty when unguided."""
    constraints = section(options, "guided_decoding")
    given = [name for name in _WRITERS if constraints.get(name) not in (None, [])]
    if not given:
        return {}
    if len(given) > 1:
        raise InvalidRequest(
            "guided_decoding", f"accepts one constraint, got {' and '.join(sorted(given))}"
        )
    name = given[0]
    field = f"guided_{name}"
    if not limits.guided:
        raise InvalidRequest(field, "the engine runs without a grammar backend")
    if not limits.has_tokenizer:
        raise InvalidRequest(field, "the engine runs without a tokenizer, which grammars need")
    if constraints.get("whitespace_pattern") is not None:
        raise InvalidRequest(
            "guided_whitespace_pattern",
            "is a setting of the whole engine (--constrained-json-whitespace-pattern)",
        )
    parameter, write = _WRITERS[name]
    text = write(field, constraints[name])
    if len(text) > MAX_GRAMMAR_CHARS:
        raise InvalidRequest(field, f"is longer than {MAX_GRAMMAR_CHARS} characters")
    return {parameter: text}


def _json_schema(field: str, value: Any) -> str:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidRequest(field, f"is no valid JSON: {error}") from None
    check_schema(field, value)
    return json.dumps(value)


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidRequest(field, "must be a non-empty string")
    return value


def _choice(field: str, value: Any) -> str:
    """SGLang has no list of choices; an alternation of literals says the same."""
    if not isinstance(value, list):
        raise InvalidRequest(field, "must be a list of strings")
    for position, choice in enumerate(value):
        if not isinstance(choice, str) or not choice:
            raise InvalidRequest(f"{field}[{position}]", "must be a non-empty string")
    return "(" + "|".join(map(escape_literal, value)) + ")"


def _structural_tag(field: str, value: Any) -> str:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise InvalidRequest(field, f"is no valid JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise InvalidRequest(field, "must be an object")
    return json.dumps(value)


def escape_literal(text: str) -> str:
    """Escape what is special in every grammar backend's regex, and nothing more: some backends
    reject an escaped ordinary character such as the space of ``re.escape``."""
    return "".join("\\" + char if char in _REGEX_SPECIAL else char for char in text)


_WRITERS: Mapping[str, tuple[str, Callable[[str, Any], str]]] = {
    "json": ("json_schema", _json_schema),
    "regex": ("regex", _text),
    "choice": ("regex", _choice),
    "grammar": ("ebnf", _text),
    "structural_tag": ("structural_tag", _structural_tag),
}
