"""An OpenAI image request (``/v1/images/generations`` and ``/v1/images/edits``) -> `MediaCall`."""

from __future__ import annotations

from typing import Any

from sglang_worker.requests import images_and_videos as media
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.images_and_videos import MediaCall, MediaLimits, Source
from sglang_worker.requests.validation import integer, string

MAX_IMAGES = 10
EXTENSIONS = {
    "negative_prompt": "what the image should not show",
    "num_inference_steps": "denoising steps",
    "guidance_scale": "how closely to follow the prompt",
    "seed": "for repeatable images",
}
FORMATS = ["png", "jpeg", "webp"]
# SGLang turns 0 to 100 into zlib's 0 to 9; this is the one that is small and still fast.
PNG_COMPRESSION = 34
LOSSY_QUALITY = 90


def map_image_request(request: Any, limits: MediaLimits) -> MediaCall:
    """Raises InvalidRequest naming the field. ``quality``, ``style``, ``user`` and ``moderation``
    have no counterpart in open models and are ignored."""
    source = Source(request, EXTENSIONS)
    media.refuse_given(source, "stream", "images are not streamed by this worker")
    media.refuse_given(source, "partial_images", "images are not streamed by this worker")
    background = string(source.top, "background")
    if background == "transparent":
        raise InvalidRequest(
            "background", "transparent images are not made; accepted: auto, opaque"
        )
    outputs = integer(source.top, "n", 1, MAX_IMAGES) or 1
    form = media.one_of("output_format", string(source.top, "output_format"), FORMATS) or "png"
    return MediaCall(
        fields={
            **media.common_fields(source, outputs),
            "output_compression": _compression(source, form),
        },
        response_format=media.response_format(source),
        format=form,
        reference=media.reference(source, limits),
        model=string(source.top, "model") or "",
    )


def _compression(source: Source, form: str) -> int:
    """``output_compression`` is OpenAI's name for the quality of lossy formats."""
    quality = integer(source.top, "output_compression", 0, 100)
    if form == "png":
        return PNG_COMPRESSION
    return LOSSY_QUALITY if quality is None else quality
