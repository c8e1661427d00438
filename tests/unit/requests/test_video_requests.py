"""Video requests, in the shapes in which the frontend of ai-dynamo 1.6.1 sends them."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.images_and_videos import MediaLimits
from sglang_worker.requests.videos import map_video_request

PLAIN = {"prompt": "a cat", "model": "vid"}
LIMITS = MediaLimits(default_fps=16)


def fields(**more: Any) -> dict[str, Any]:
    return dict(map_video_request({**PLAIN, **more}, LIMITS).fields)


def test_without_a_length_the_models_own_counts() -> None:
    found = fields()
    assert "num_frames" not in found and "fps" not in found
    assert map_video_request(PLAIN, LIMITS).fps == 16


def test_seconds_count_at_the_clients_or_the_models_rate() -> None:
    assert fields(seconds=2)["num_frames"] == 32
    assert fields(seconds=2, nvext={"fps": 8})["num_frames"] == 16


def test_a_number_of_frames_wins_over_seconds() -> None:
    assert fields(seconds=2, nvext={"num_frames": 5, "fps": 8})["num_frames"] == 5


def test_the_experts_of_a_mixture_are_steered_apart() -> None:
    found = fields(nvext={"guidance_scale": 4, "guidance_scale_2": 3, "boundary_ratio": 0.9})
    assert (found["guidance_scale"], found["guidance_scale_2"], found["boundary_ratio"]) == (
        *(4, 3),
        0.9,
    )


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"seconds": 0}, "seconds"),
        ({"seconds": 121}, "seconds"),
        ({"seconds": 100}, "seconds"),
        ({"seconds": "2"}, "seconds"),
        ({"nvext": {"fps": 0}}, "fps"),
        ({"nvext": {"fps": 121}}, "fps"),
        ({"nvext": {"num_frames": 0}}, "num_frames"),
        ({"nvext": {"num_frames": 1001}}, "num_frames"),
        ({"nvext": {"boundary_ratio": 1.5}}, "boundary_ratio"),
        ({"nvext": {"guidance_scale_2": -1}}, "guidance_scale_2"),
        ({"output_format": "webm"}, "output_format"),
        ({"size": "100x100"}, "size"),
        ({"extra_args": {"media_passthrough": {"foo": 1}}}, "foo"),
    ],
)
def test_a_wrong_value_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        map_video_request({**PLAIN, **given}, LIMITS)
    assert refused.value.field == field
