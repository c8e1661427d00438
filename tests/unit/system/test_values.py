# SGLang annotates with Optional and Union, so that is what must be understood.
# ruff: noqa: UP007, UP045
"""Bodies in, results out: the two conversions that must survive anything."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from typing import Any, Optional, Union

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_worker.system.conversion import Mismatch, convert
from sglang_worker.system.envelope import encode, envelope, to_json
from sglang_worker.system.faults import BadRequest
from sglang_worker.system.json_body import parse_object

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"[]", "must be a JSON object, not an array"),
        (b'"x"', "not a string"),
        (b"null", "not null"),
        (b"true", "not a boolean"),
        (b"1", "not an integer"),
        (b" ", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": Infinity}', "not JSON"),
        (b'{"a": "\xff"}', "not JSON"),
        (b'{"a": "\\ud800"}', "not JSON"),
        (b"\xff\xfe{\x00}\x00", "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b'{"a": 1e999}', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a": [123456789012345678901234567890]}', r"a\[0\]: the integer is out of"),
        (b'{"a":' * 100_000, "nested deeper|not JSON"),
        (b'{"a":' * 70 + b"1" + b"}" * 70, "nested deeper than 64"),
        (b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}", "nested deeper"),
    ],
)
def test_a_body_that_is_no_usable_object_is_a_bad_request(body: bytes, named: str) -> None:
    with pytest.raises(BadRequest, match=named):
        parse_object(body)


def test_an_empty_body_is_an_empty_object() -> None:
    assert parse_object(b"") == {}
    assert parse_object(b"{}") == {}
    assert parse_object(b'{"a": [1, -9223372036854775808]}') == {"a": [1, -(1 << 63)]}


@given(st.binary(max_size=200))
def test_any_bytes_are_an_object_or_a_bad_request(body: bytes) -> None:
    try:
        assert isinstance(parse_object(body), dict)
    except BadRequest as fault:
        assert fault.status == 400


@pytest.mark.parametrize(
    ("value", "annotation", "expected"),
    [
        (1, int, 1),
        (1, float, 1.0),
        (None, Optional[int], None),
        ("x", Union[int, str], "x"),
        ([1, [2.5]], list[float | list[float]], [1.0, [2.5]]),
        ([1, "a"], tuple[int, str], (1, "a")),
        ({"1": "x"}, dict[int, str], {1: "x"}),
        ("aGk=", Union[str, bytes], "aGk="),
        ({"any": 1}, Any, {"any": 1}),
        ([1], "Unresolvable", [1]),
    ],
)
def test_json_fits_its_annotation(value: Any, annotation: Any, expected: Any) -> None:
    assert convert(value, annotation, "x") == expected


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (True, int),
        ("1", int),
        (1.0, int),
        ("1", float),
        (1, str),
        ([1], dict),
        ({}, list[int]),
        ([1], tuple[int, int]),
        ({"a": 1}, dict[int, int]),
        ("x", pytest.Item),
        ([[1]], set[Any]),
    ],
)
def test_json_that_does_not_fit_is_a_mismatch(value: Any, annotation: Any) -> None:
    with pytest.raises(Mismatch, match=r"^x"):
        convert(value, annotation, "x")


class Color(Enum):
    RED = "red"


class Point(msgspec.Struct, array_like=True, tag=True):
    x: float
    y: Any = None


@dataclasses.dataclass
class Box:
    corner: Point
    color: Color = Color.RED


class FakeTensor:
    shape = (2,)

    def tolist(self) -> list[float]:
        return [1.0, float("nan")]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (None, {"status": "ok"}),
        ((True, "m"), {"success": True, "message": "m"}),
        ((False, "m", 3), {"success": False, "message": "m", "num_paused_requests": 3}),
        ((1, 2, 3, 4), {"result": [1, 2, 3, 4]}),
        (
            {"a": float("nan"), 2: float("inf")},
            {"a": None, "2": None},
        ),
        ([1, 2], {"result": [1, 2]}),
        ("text", {"result": "text"}),
        (True, {"result": True}),
        (
            Box(Point(1.5, [Point(2.0)])),
            {"corner": {"x": 1.5, "y": [{"x": 2.0, "y": None}]}, "color": "red"},
        ),
        ({"t": FakeTensor()}, {"t": [1.0, None]}),
        (Color.RED, {"result": "red"}),
        ({"big": 1 << 100}, {"big": str(1 << 100)}),
        ({"b": b"hi"}, {"b": "aGk="}),
        ({"s": "\ud800"}, {"s": "?"}),
        ({"success": False, "message": "no"}, {"success": False, "message": "no"}),
    ],
)
def test_results_become_the_documented_envelope(result: Any, expected: Any) -> None:
    value = envelope(result)
    assert value == expected
    assert json.loads(encode(value)) == expected


def test_a_recursive_result_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert b"nested too deeply" in encode(envelope(loop))


@given(ANY_JSON)
def test_any_result_is_valid_json(result: Any) -> None:
    json.loads(encode(to_json(result)))


@given(ANY_JSON, st.sampled_from([int, str, list[int], dict[str, float], Point, Box, Color]))
def test_any_value_fits_or_is_a_mismatch(value: Any, annotation: Any) -> None:
    try:
        convert(value, annotation, "x")
    except Mismatch as mismatch:
        assert str(mismatch).startswith("x")


def test_an_ill_typed_item_of_an_optional_array_is_named_itself() -> None:
    with pytest.raises(Mismatch, match=r"^tags\[0\]: expected a string, not an integer$"):
        convert([1], Optional[list[str]], "tags")
    with pytest.raises(Mismatch, match=r"^ids\[0\]: expected"):
        convert([1.5], Optional[Union[list[int], list[str]]], "ids")
    with pytest.raises(Mismatch, match=r"^ids: expected an array or null, not an integer"):
        convert(5, Optional[Union[list[int], list[str]]], "ids")
