"""What image and video requests have in common: fields, bounds, and the call made of them.

Wire shapes as the frontend of ai-dynamo 1.6.1 sends them: OpenAI's fields at the top, Dynamo's own
under ``nvext``, and fields that it does not know under ``extra_args.media_passthrough``, where
OpenAI's client puts ``extra_body``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.validation import integer, number, section, string

PASSTHROUGH = "media_passthrough"
MAX_PROMPT_CHARS = 32_000
# The frontend's own type for steps ends at 255.
MAX_STEPS = 255
MAX_GUIDANCE = 100.0
# Seeds of several outputs count upwards from it; torch takes 64 bits.
MAX_SEED = 2**62
MIN_SIDE, MAX_SIDE, SIDE_STEP = 32, 4096, 16
# Of an image that guides: models fit it into whole steps of some area, which leaves nothing of a
# strip.
MAX_SIDE_RATIO = 16
AUTO = "auto"


class ResponseFormat(str, Enum):
    URL = "url"
    B64_JSON = "b64_json"


class MediaLimits(msgspec.Struct, frozen=True):
    """What the served pipeline takes."""

    accepts_image: bool = False
    requires_image: bool = False
    default_fps: int = 24


class MediaCall(msgspec.Struct, frozen=True, kw_only=True):
    """``fields``: keyword arguments of the generator, without ids and paths. ``reference``: the
    image that guides the generation, as the client wrote it."""

    fields: Mapping[str, Any]
    response_format: ResponseFormat
    # Of the file: "png", "jpeg", "webp", "mp4".
    format: str
    reference: str | None = None
    fps: int | None = None
    model: str = ""


class Source:
    """One request: OpenAI's fields, then ``nvext``, then what the client sent besides."""

    def __init__(self, request: Any, extensions: Mapping[str, str]) -> None:
        """``extensions``: the names that ``nvext`` may hold; elsewhere they count the same."""
        if not isinstance(request, Mapping):
            raise InvalidRequest("request", "must be an object")
        self.top = request
        self._nvext = section(request, "nvext")
        self._extra = section(section(request, "extra_args"), PASSTHROUGH)
        for name in self._extra:
            if name not in extensions:
                raise InvalidRequest(
                    str(name),
                    f"is not a field of this endpoint; also accepted: {_list(extensions)}",
                )

    def place(self, name: str) -> Mapping[str, Any]:
        """Where an extension was given; ``nvext`` counts before the rest."""
        for place in (self._nvext, self.top, self._extra):
            if place.get(name) is not None:
                return place
        return self._nvext


def prompt(source: Source) -> str:
    text = string(source.top, "prompt")
    if text is None or not text.strip():
        raise InvalidRequest("prompt", "must be a text that is not empty")
    if len(text) > MAX_PROMPT_CHARS:
        raise InvalidRequest("prompt", f"must have at most {MAX_PROMPT_CHARS} characters")
    return text


def common_fields(source: Source, outputs: int = 1) -> dict[str, Any]:
    """Prompt, seed, steps and guidance. What is absent is left to the model's own defaults."""
    steps = "num_inference_steps"
    seed = integer(source.place("seed"), "seed", 0, MAX_SEED)
    negative = string(source.place("negative_prompt"), "negative_prompt")
    if negative is not None and len(negative) > MAX_PROMPT_CHARS:
        raise InvalidRequest("negative_prompt", f"must have at most {MAX_PROMPT_CHARS} characters")
    found = {
        "prompt": prompt(source),
        "negative_prompt": negative,
        "num_inference_steps": integer(source.place(steps), steps, 1, MAX_STEPS),
        "guidance_scale": guidance(source, "guidance_scale"),
        "seed": secrets.randbelow(2**31) if seed is None else seed,
        "num_outputs_per_prompt": outputs,
        **size(source),
    }
    return {name: value for name, value in found.items() if value is not None}


def guidance(source: Source, field: str) -> float | None:
    value = number(source.place(field), field)
    if value is not None and not 0 <= value <= MAX_GUIDANCE:
        raise InvalidRequest(field, f"must be between 0 and {MAX_GUIDANCE:g}, got {value:g}")
    return value


def size(source: Source) -> dict[str, int]:
    """``"640x480"`` -> width and height; nothing for ``auto`` and an absent size."""
    text = string(source.top, "size")
    if text is None or text == AUTO:
        return {}
    width, cross, height = text.lower().partition("x")
    digits = text.isascii() and width.isdecimal() and height.isdecimal()
    if not (cross and digits and len(text) <= 16):
        raise InvalidRequest("size", f"must be '<width>x<height>' or 'auto', got {text[:40]!r}")
    sides = {"width": int(width), "height": int(height)}
    for name, pixels in sides.items():
        if not MIN_SIDE <= pixels <= MAX_SIDE or pixels % SIDE_STEP:
            raise InvalidRequest(
                "size",
                f"{name} must be a multiple of {SIDE_STEP} between {MIN_SIDE} and {MAX_SIDE}, "
                f"got {pixels}",
            )
    return sides


def response_format(source: Source) -> ResponseFormat:
    text = string(source.top, "response_format")
    return ResponseFormat(
        one_of("response_format", text, [kind.value for kind in ResponseFormat])
        or ResponseFormat.URL.value
    )


def one_of(field: str, value: str | None, accepted: list[str]) -> str | None:
    if value is not None and value not in accepted:
        raise InvalidRequest(field, f"must be one of {', '.join(accepted)}, got {value[:40]!r}")
    return value


def reference(source: Source, limits: MediaLimits) -> str | None:
    """The image that guides the generation: an http(s) URL or a data URI."""
    text = string(source.top, "input_reference")
    if text is not None and not text.strip():
        raise InvalidRequest("input_reference", "must not be empty")
    if text is not None and not limits.accepts_image:
        raise InvalidRequest("input_reference", "this model takes no image, only a prompt")
    if text is None and limits.requires_image:
        raise InvalidRequest("input_reference", "this model needs an image")
    return text


def refuse_given(source: Source, field: str, reason: str) -> None:
    if source.top.get(field):
        raise InvalidRequest(field, reason)


def _list(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names))
