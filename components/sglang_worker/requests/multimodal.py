"""Images, audio and video in a request.

Dynamo's frontend extracts media into ``multi_modal_data`` as ``{"image_url": [{"Url": …}]}``.
SGLang's engine would silently drop media on a text-only model, so it is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.validation import section, sequence

_FIELDS: Mapping[str, str] = {
    "image_url": "image_data",
    "video_url": "video_data",
    "audio_url": "audio_data",
}


def multimodal_fields(request: Mapping[str, Any], limits: EngineLimits) -> dict[str, list[str]]:
    """SGLang's ``image_data``, ``video_data`` and ``audio_data``."""
    media = section(request, "multi_modal_data")
    found = {kind: sequence(media, kind) for kind in _FIELDS}
    kinds = [kind for kind, items in found.items() if items] or _kinds_in_messages(request)
    if not kinds:
        return {}
    if not limits.accepts_media:
        raise InvalidRequest(
            "messages", f"this model accepts text only, got a part of type {kinds[0]}"
        )
    missing = [kind for kind in _kinds_in_messages(request) if not found[kind]]
    if missing:
        raise InvalidRequest(
            "multi_modal_data", f"the frontend passed on no {missing[0]} although messages have it"
        )
    return {
        _FIELDS[kind]: [_url(kind, position, item) for position, item in enumerate(items)]
        for kind, items in found.items()
        if items
    }


def _kinds_in_messages(request: Mapping[str, Any]) -> list[str]:
    """Media parts of the original messages, which the frontend keeps beside the tokens."""
    messages = section(request, "extra_args").get("messages")
    kinds: set[str] = set()
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, Mapping) else None
            if isinstance(kind, str) and kind in _FIELDS:
                kinds.add(kind)
    return sorted(kinds)


def _url(kind: str, position: int, item: Any) -> str:
    url = item.get("Url") if isinstance(item, Mapping) else item
    if not isinstance(url, str) or not url:
        raise InvalidRequest(
            f"{kind}[{position}]", "must be a URL; decoded media needs --frontend-decoding"
        )
    return url
