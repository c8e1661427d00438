"""Which media parts a request has, and which of them a worker refuses."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.multimodal import MediaSupport, by_field, has_media, media_parts

ALL = MediaSupport()


def message(*kinds: str) -> dict[str, Any]:
    parts = [{"type": kind, kind: {"url": ""}} for kind in kinds]
    return {"messages": [{"role": "user", "content": parts}, {"role": "user", "content": "text"}]}


def test_parts_come_by_kind_in_their_order() -> None:
    data = {"video_url": [{"Url": "v"}], "image_url": [{"Url": "a"}, "b"], "audio_url": []}
    parts = media_parts({"multi_modal_data": data}, ALL)
    assert [(one.name, one.url) for one in parts] == [
        ("image_url[0]", "a"),
        ("image_url[1]", "b"),
        ("video_url[0]", "v"),
    ]
    assert by_field(parts, [1, 2, 3]) == {"image_data": [1, 2], "video_data": [3]}


def test_a_request_of_text_has_no_parts() -> None:
    assert media_parts({"token_ids": [1], "extra_args": message()}, ALL) == ()
    assert not has_media({"input_ids": [1]})
    assert has_media({"input_ids": [1], "video_data": [b""]})


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        ({"multi_modal_data": {"image_url": [{"Url": 5}]}}, r"image_url\[0\]"),
        ({"multi_modal_data": {"image_url": ["a", ""]}}, r"image_url\[1\]"),
        ({"multi_modal_data": {"image_url": ["a", None]}}, r"image_url\[1\]"),
        ({"multi_modal_data": {"image_url": {"Url": "a"}}}, "image_url"),
        ({"multi_modal_data": {"image_url": [{"Decoded": {}}]}}, "--frontend-decoding"),
        ({"multi_modal_data": {"tensor": ["a"]}}, "tensor is not known"),
        ({"multi_modal_data": ["a"]}, "multi_modal_data"),
        ({"extra_args": message("image_url")}, "passed on no image_url"),
        ({"extra_args": message("input_audio")}, "send the clip as audio_url"),
        (
            {
                "multi_modal_data": {"image_url": ["a"]},
                "extra_args": message("image_url", "input_audio"),
            },
            "send the clip as audio_url",
        ),
        (
            {
                "multi_modal_data": {"image_url": ["a"]},
                "multi_modal_uuids": {"image_url": [None, "x"]},
            },
            "cache ids",
        ),
    ],
)
def test_a_faulty_part_is_refused_by_name(request_: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        media_parts(request_, ALL)


def test_a_kind_that_the_model_cannot_take_is_refused_wherever_it_shows() -> None:
    support = MediaSupport(refusals={"audio_url": "this model takes no audio input"})
    for request in (
        {"multi_modal_data": {"audio_url": ["a"]}},
        {"extra_args": message("image_url", "audio_url")},
    ):
        with pytest.raises(InvalidRequest, match="takes no audio"):
            media_parts(request, support)


def test_more_parts_than_the_operator_allows_are_refused_before_any_is_fetched() -> None:
    support = MediaSupport(most={"image_url": 2})
    data = {"multi_modal_data": {"image_url": ["a", "b"]}}
    assert len(media_parts(data, support)) == 2
    data["multi_modal_data"]["image_url"].append("c")
    with pytest.raises(InvalidRequest, match="has 3 parts of type image_url, this worker takes 2"):
        media_parts(data, support)


def test_pixels_of_the_frontend_are_a_part_where_they_are_expected() -> None:
    data = {"multi_modal_data": {"image_url": [{"Decoded": {"shape": [2, 2, 3]}}]}}
    (part,) = media_parts(data, MediaSupport(frontend_decoding=True))
    assert part.decoded == {"shape": [2, 2, 3]}
    data["multi_modal_data"]["image_url"][0]["Decoded"] = "no object"
    with pytest.raises(InvalidRequest, match=r"image_url\[0\]"):
        media_parts(data, MediaSupport(frontend_decoding=True))
