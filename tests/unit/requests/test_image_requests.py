"""OpenAI image requests, in the shapes in which the frontend of ai-dynamo 1.6.1 sends them."""

from __future__ import annotations

from typing import Any

import pytest
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.images import map_image_request
from sglang_worker.requests.images_and_videos import MediaLimits, ResponseFormat

PLAIN = {"prompt": "a cat", "model": "img"}
TEXT_ONLY = MediaLimits()
GUIDED = MediaLimits(accepts_image=True)


def fields(**more: Any) -> dict[str, Any]:
    return dict(map_image_request({**PLAIN, **more}, TEXT_ONLY).fields)


def test_what_the_client_leaves_out_is_left_to_the_model() -> None:
    found = fields()
    assert found.pop("seed") < 2**31
    assert found == {"prompt": "a cat", "num_outputs_per_prompt": 1, "output_compression": 34}


def test_two_requests_without_a_seed_get_different_images() -> None:
    assert len({fields()["seed"] for _ in range(8)}) > 1


def test_size_count_and_extensions_reach_the_generator() -> None:
    nvext = {"num_inference_steps": 3, "guidance_scale": 2.5, "seed": 5, "negative_prompt": "dog"}
    assert fields(n=2, size="640x480", nvext=nvext) == {
        "prompt": "a cat",
        "negative_prompt": "dog",
        "num_inference_steps": 3,
        "guidance_scale": 2.5,
        "seed": 5,
        "num_outputs_per_prompt": 2,
        "width": 640,
        "height": 480,
        "output_compression": 34,
    }


def test_extensions_that_the_frontend_does_not_know_arrive_beside_and_count_less_than_nvext() -> (
    None
):
    extra = {"media_passthrough": {"num_inference_steps": 9, "seed": 1}}
    assert fields(extra_args=extra)["num_inference_steps"] == 9
    assert fields(extra_args=extra, nvext={"seed": 2})["seed"] == 2


def test_the_operators_flat_health_payload_is_understood() -> None:
    assert fields(num_inference_steps=1, guidance_scale=7.5)["num_inference_steps"] == 1


def test_auto_size_is_the_models_own() -> None:
    assert "width" not in fields(size="auto")


def test_fields_of_openai_without_a_counterpart_are_ignored() -> None:
    ignored = {"quality": "hd", "style": "vivid", "user": "me", "moderation": "low"}
    assert set(fields(**ignored)) == set(fields())


@pytest.mark.parametrize(
    ("given", "format_", "quality"),
    [
        ({}, "png", 34),
        ({"output_format": "webp"}, "webp", 90),
        ({"output_format": "jpeg", "output_compression": 40}, "jpeg", 40),
    ],
)
def test_output_formats(given: dict[str, Any], format_: str, quality: int) -> None:
    call = map_image_request({**PLAIN, **given}, TEXT_ONLY)
    assert (call.format, call.fields["output_compression"]) == (format_, quality)


def test_url_is_the_default_answer_as_openai_has_it() -> None:
    assert map_image_request(PLAIN, TEXT_ONLY).response_format is ResponseFormat.URL
    request = {**PLAIN, "response_format": "b64_json"}
    assert map_image_request(request, TEXT_ONLY).response_format is ResponseFormat.B64_JSON


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"prompt": "  "}, "prompt"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": "x" * 32_001}, "prompt"),
        ({"n": 0}, "n"),
        ({"n": 11}, "n"),
        ({"n": True}, "n"),
        ({"size": "blah"}, "size"),
        ({"size": "512"}, "size"),
        ({"size": "512x"}, "size"),
        ({"size": "-512x512"}, "size"),
        ({"size": "513x512"}, "size"),
        ({"size": "16x512"}, "size"),
        ({"size": "512x8192"}, "size"),
        ({"size": "512x512x512"}, "size"),
        ({"size": "٥١٢x512"}, "size"),
        ({"size": "9" * 500 + "x512"}, "size"),
        ({"response_format": "gif"}, "response_format"),
        ({"output_format": "gif"}, "output_format"),
        ({"output_compression": 101}, "output_compression"),
        ({"background": "transparent"}, "background"),
        ({"stream": True}, "stream"),
        ({"partial_images": 2}, "partial_images"),
        ({"nvext": 3}, "nvext"),
        ({"nvext": {"num_inference_steps": 0}}, "num_inference_steps"),
        ({"nvext": {"num_inference_steps": 256}}, "num_inference_steps"),
        ({"nvext": {"num_inference_steps": 2.5}}, "num_inference_steps"),
        ({"nvext": {"seed": -1}}, "seed"),
        ({"nvext": {"seed": 2**63}}, "seed"),
        ({"nvext": {"guidance_scale": -0.1}}, "guidance_scale"),
        ({"nvext": {"guidance_scale": float("nan")}}, "guidance_scale"),
        ({"nvext": {"guidance_scale": 101}}, "guidance_scale"),
        ({"nvext": {"negative_prompt": 1}}, "negative_prompt"),
        ({"extra_args": {"media_passthrough": {"steps": 3}}}, "steps"),
        ({"input_reference": "https://host/x.png"}, "input_reference"),
    ],
)
def test_a_wrong_value_is_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        map_image_request({**PLAIN, **given}, TEXT_ONLY)
    assert refused.value.field == field
    assert len(str(refused.value)) < 300


def test_a_body_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="request: must be an object"):
        map_image_request([1], TEXT_ONLY)


def test_a_guiding_image_goes_to_models_that_take_one() -> None:
    request = {**PLAIN, "input_reference": "data:image/png;base64,AA=="}
    assert map_image_request(request, GUIDED).reference == "data:image/png;base64,AA=="
    assert map_image_request(PLAIN, GUIDED).reference is None


def test_a_model_that_needs_an_image_says_so() -> None:
    with pytest.raises(InvalidRequest, match="input_reference: this model needs an image"):
        map_image_request(PLAIN, MediaLimits(accepts_image=True, requires_image=True))
