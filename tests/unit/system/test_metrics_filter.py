from __future__ import annotations

from collections.abc import AsyncIterator

import h11
import pytest
from sglang_worker.system.http import HttpError, HttpResponse
from sglang_worker.system.metrics_filter import select, selected, wanted

TEXT = """\
# HELP one_total First.
# TYPE one_total counter
one_total{a="x"} 1
one_total{a="y z"} 2
# HELP span_seconds Second.
# TYPE span_seconds histogram
span_seconds_bucket{le="1"} 1
span_seconds_bucket{le="+Inf"} 1
span_seconds_sum 0.5
span_seconds_count 1
# HELP empty Nothing yet.
# TYPE empty gauge
bare 3
"""


def kept(*names: str) -> list[str]:
    return list(select(TEXT.splitlines(), frozenset(names)))


def test_a_family_comes_whole_with_its_help_and_type() -> None:
    assert kept("span_seconds") == TEXT.splitlines()[4:10]
    assert kept("one_total", "bare") == [*TEXT.splitlines()[:4], "bare 3"]


def test_a_sample_name_selects_those_samples_under_the_familys_head() -> None:
    assert kept("span_seconds_sum") == [*TEXT.splitlines()[4:6], "span_seconds_sum 0.5"]


def test_a_name_that_only_begins_like_a_family_selects_nothing() -> None:
    assert kept("span", "one", "span_seconds_") == []


def test_a_family_without_samples_is_still_described() -> None:
    assert kept("empty") == TEXT.splitlines()[10:12]


def test_names_are_taken_from_the_query_encoded_or_not() -> None:
    assert wanted("name[]=a&name%5B%5D=sglang%3Ab") == {"a", "sglang:b"}
    assert wanted("") == wanted("name=a") == wanted("x[]=a") == frozenset()


async def streamed(text: str, fault: Exception | None = None) -> AsyncIterator[bytes]:
    for start in range(0, len(text), 7):
        yield text[start : start + 7].encode()
    if fault is not None:
        raise fault


async def test_a_streamed_answer_is_joined_and_its_length_left_to_be_counted_anew() -> None:
    headers = {"content-type": "text/plain", "content-length": str(len(TEXT))}
    answer = HttpResponse(status=200, body=streamed(TEXT), headers=headers)
    filtered = await selected(answer, frozenset({"bare"}))
    assert filtered.body == b"bare 3\n"
    assert filtered.headers == {"content-type": "text/plain"}


@pytest.mark.parametrize("character", "\x0b\x0c\x1c\x85\u2028\r")
async def test_a_label_may_hold_what_looks_like_the_end_of_a_line(character: str) -> None:
    sample = f'one_total{{model="a{character}b"}} 1\n'
    answer = HttpResponse(status=200, body=(sample + "bare 3\n").encode(), headers={})
    found = await selected(answer, frozenset({"one_total"}))
    assert found.body == sample.encode()


async def test_an_answer_that_breaks_off_is_no_success() -> None:
    fault = h11.RemoteProtocolError("ended early")
    with pytest.raises(HttpError) as caught:
        await selected(HttpResponse(status=200, body=streamed(TEXT, fault)), frozenset({"bare"}))
    assert caught.value.status == 502


async def test_other_answers_pass_as_they_are() -> None:
    answer = HttpResponse(status=503, body=b"{}")
    assert await selected(answer, frozenset({"bare"})) is answer
