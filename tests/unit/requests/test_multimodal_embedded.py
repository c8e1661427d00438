"""The form in which an encode worker hands a request to an internal worker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.multimodal_embedded import (
    EmbeddedItem,
    EmbeddedMedia,
    embedded_media,
    expanded,
    forwarded,
)

IMAGE, VIDEO = 6, 7
PLACEHOLDERS = {"image_url": IMAGE, "video_url": VIDEO}


def item(kind: str, rows: int) -> EmbeddedItem:
    return EmbeddedItem(kind, (1, 2, 2 * rows), rows)


def test_each_placeholder_becomes_one_token_per_row_of_its_own_medium() -> None:
    items = [item("image_url", 3), item("image_url", 1), item("video_url", 2)]
    prompt = [1, IMAGE, 2, VIDEO, 3, IMAGE, 4]
    assert expanded(prompt, items, PLACEHOLDERS) == [1, *[IMAGE] * 3, 2, *[VIDEO] * 2, 3, IMAGE, 4]
    assert prompt == [1, IMAGE, 2, VIDEO, 3, IMAGE, 4]


@pytest.mark.parametrize("prompt", [[1, 2], [IMAGE, IMAGE]])
def test_placeholders_and_media_must_be_as_many(prompt: list[int]) -> None:
    with pytest.raises(InvalidRequest, match="placeholders for 1 image parts"):
        expanded(prompt, [item("image_url", 3)], PLACEHOLDERS)


def test_placeholders_of_a_kind_without_media_stay_ordinary_tokens() -> None:
    assert expanded([VIDEO, IMAGE], [item("image_url", 2)], PLACEHOLDERS) == [VIDEO, IMAGE, IMAGE]


def test_what_is_forwarded_survives_json_and_has_no_media_left() -> None:
    request = {
        "token_ids": [1, IMAGE],
        "multi_modal_data": {"image_url": [{"Url": "data:…"}]},
        "extra_args": {"messages": [{"role": "user"}], "nvext": {"a": 1}},
        "stop_conditions": {"max_tokens": 4},
    }
    media = EmbeddedMedia((item("image_url", 2),), {"serialized_request": "x"})
    sent = json.loads(json.dumps(forwarded(request, media, PLACEHOLDERS)))
    assert sent["token_ids"] == [1, IMAGE, IMAGE]
    assert "multi_modal_data" not in sent
    assert sent["extra_args"] == {"nvext": {"a": 1}}
    assert sent["stop_conditions"] == {"max_tokens": 4}
    assert embedded_media(sent) == media
    assert request["token_ids"] == [1, IMAGE]


@pytest.mark.parametrize(
    "source",
    [
        {},
        {"items": []},
        {"items": ["x"]},
        {"items": [{"kind": "image_url", "rows": 0, "grid": [1, 2, 2]}]},
        {"items": [{"kind": "image_url", "rows": 2, "grid": [1, 2]}]},
        {"items": [{"kind": "tensor", "rows": 2, "grid": [1, 2, 2]}]},
        {"items": [{"rows": 2, "grid": [1, 2, 2]}]},
    ],
)
def test_a_malformed_hand_over_is_refused(source: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"embedded_media|rows: must be at least 1"):
        embedded_media({"embedded_media": source})
