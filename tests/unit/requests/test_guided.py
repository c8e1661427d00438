from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.guided import escape_literal
from sglang_worker.requests.mapping import GenerateCall

Call = Callable[..., GenerateCall]


def guided(call: Call, change: dict[str, Any] | None = None, **constraints: Any) -> Any:
    mapped = call(sampling={"guided_decoding": constraints}, change=change)
    return {k: v for k, v in mapped.fields["sampling_params"].items() if k != "max_new_tokens"}


def test_no_constraint_adds_nothing(call: Call) -> None:
    assert guided(call) == {}
    assert guided(call, json=None, choice=[], backend="xgrammar") == {}


def test_each_constraint_has_its_sglang_parameter(call: Call) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert json.loads(guided(call, json=schema)["json_schema"]) == schema
    assert json.loads(guided(call, json=json.dumps(schema))["json_schema"]) == schema
    assert guided(call, regex="a+") == {"regex": "a+"}
    assert guided(call, choice=["a.b", "c"]) == {"regex": "(a\\.b|c)"}
    assert guided(call, grammar='root ::= "a"') == {"ebnf": 'root ::= "a"'}
    tag = {"type": "structural_tag", "structures": [], "triggers": []}
    assert json.loads(guided(call, structural_tag=tag)["structural_tag"]) == tag


def test_two_constraints_at_once_are_refused(call: Call) -> None:
    with pytest.raises(InvalidRequest, match="json and regex"):
        guided(call, json={"type": "object"}, regex="a")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("json", "{"),
        ("json", [1]),
        ("json", {"type": "objekt"}),
        ("json", {"type": 3}),
        ("json", {"$ref": "#/$defs/missing"}),
        ("json", {"$ref": "#"}),
        ("json", {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        ("json", {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}),
        ("regex", 1),
        ("regex", ""),
        ("choice", "a"),
        ("choice", [""]),
        ("choice", [1]),
        ("grammar", {"a": 1}),
        ("structural_tag", "{"),
        ("structural_tag", [1]),
    ],
)
def test_a_constraint_that_is_none_is_named(call: Call, name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        guided(call, **{name: value})
    assert caught.value.field.startswith(f"guided_{name}")


def test_a_schema_may_refer_to_itself_below_a_property(call: Call) -> None:
    tree = {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "$ref": "#/$defs/node",
    }
    assert "json_schema" in guided(call, json=tree)


def test_a_schema_nested_without_end_is_refused(call: Call) -> None:
    schema: dict[str, Any] = {"type": "object"}
    for _ in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(InvalidRequest, match="nested"):
        guided(call, json=schema)


@pytest.mark.parametrize("change", [{"guided": False}, {"has_tokenizer": False}])
def test_an_engine_without_grammars_says_so(call: Call, change: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="guided_regex"):
        guided(call, change=change, regex="a")


def test_the_whitespace_of_json_is_a_setting_of_the_engine(call: Call) -> None:
    with pytest.raises(InvalidRequest, match="constrained-json-whitespace-pattern"):
        guided(call, json={"type": "object"}, whitespace_pattern=" ")


@given(st.text(min_size=1))
def test_an_escaped_choice_matches_itself_and_nothing_else(text: str) -> None:
    pattern = re.compile(escape_literal(text), re.DOTALL)
    assert pattern.fullmatch(text)
    assert not pattern.fullmatch(text + "x")


def test_min_tokens_and_a_grammar_could_leave_no_token_and_are_refused(call: Call) -> None:
    constraint = {"guided_decoding": {"regex": "a"}}
    with pytest.raises(InvalidRequest, match="min_tokens"):
        call(sampling=constraint, stop={"min_tokens": 2})
    assert call(sampling=constraint, stop={"min_tokens": 0})
