from __future__ import annotations

from tests.support.client import StreamEvent, parse_events


def events(text: str) -> list[StreamEvent]:
    return list(parse_events(iter(text.encode().splitlines(keepends=True))))


def test_data_events_are_parsed_and_done_stays_text() -> None:
    assert events('data: {"a": 1}\n\ndata: [DONE]\n\n') == [
        StreamEvent("data", {"a": 1}),
        StreamEvent("data", "[DONE]"),
    ]


def test_comments_between_events_are_skipped() -> None:
    assert events(": keep-alive\n\ndata: 1\n\n") == [StreamEvent("data", 1)]


def test_the_text_of_an_error_event_may_stand_in_a_comment() -> None:
    assert events('event: error\n: "it broke"\n\n') == [StreamEvent("error", "it broke")]


def test_an_event_without_an_empty_line_after_it_is_incomplete() -> None:
    assert events('data: {"a": 1}\n') == []
