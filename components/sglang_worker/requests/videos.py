"""A Dynamo video request (``/v1/videos``) -> `MediaCall`."""

from __future__ import annotations

from typing import Any

from sglang_worker.requests import images_and_videos as media
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.images_and_videos import MediaCall, MediaLimits, Source
from sglang_worker.requests.validation import integer, number, string

MAX_FPS = 120
MAX_SECONDS = 120
MAX_FRAMES = 1000
FORMATS = ["mp4"]
EXTENSIONS = {
    "negative_prompt": "what the video should not show",
    "num_inference_steps": "denoising steps",
    "guidance_scale": "how closely to follow the prompt",
    "guidance_scale_2": "the same for the low-noise expert",
    "boundary_ratio": "where the experts change",
    "seed": "for repeatable videos",
    "fps": "frames per second",
    "num_frames": "instead of seconds",
}


def map_video_request(request: Any, limits: MediaLimits) -> MediaCall:
    """Raises InvalidRequest naming the field. Without ``num_frames`` and ``seconds`` the model's
    own length counts; the model may round the number of frames."""
    source = Source(request, EXTENSIONS)
    media.one_of("output_format", string(source.top, "output_format"), FORMATS)
    fps = integer(source.place("fps"), "fps", 1, MAX_FPS)
    timing = {"fps": fps, "num_frames": frames(source, fps or limits.default_fps)}
    experts = {
        "guidance_scale_2": media.guidance(source, "guidance_scale_2"),
        "boundary_ratio": _ratio(source),
    }
    given = {name: value for name, value in {**timing, **experts}.items() if value is not None}
    return MediaCall(
        fields={**media.common_fields(source), **given},
        response_format=media.response_format(source),
        format=FORMATS[0],
        reference=media.reference(source, limits),
        fps=fps or limits.default_fps,
        model=string(source.top, "model") or "",
    )


def frames(source: Source, fps: int) -> int | None:
    """``num_frames``, else ``seconds`` at ``fps``; None when neither is given."""
    wanted = integer(source.place("num_frames"), "num_frames", 1, MAX_FRAMES)
    seconds = integer(source.top, "seconds", 1, MAX_SECONDS)
    if wanted is not None or seconds is None:
        return wanted
    if seconds * fps > MAX_FRAMES:
        raise InvalidRequest(
            "seconds", f"{seconds} s at {fps} fps are more than {MAX_FRAMES} frames"
        )
    return seconds * fps


def _ratio(source: Source) -> float | None:
    value = number(source.place("boundary_ratio"), "boundary_ratio")
    if value is not None and not 0 <= value <= 1:
        raise InvalidRequest("boundary_ratio", f"must be between 0 and 1, got {value:g}")
    return value
