"""Images, video and audio in a request: which parts there are, and whether they may be.

Dynamo's frontend extracts media into ``multi_modal_data`` as ``{"image_url": [{"Url": …}]}``, or
``{"Decoded": …}`` when it decodes itself. A prompt holds one placeholder token per part. SGLang's
engine would silently drop media that its model cannot take, so that is refused here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.validation import section, sequence

# Kinds of parts -> the field of SGLang's generate request.
ENGINE_FIELDS: Mapping[str, str] = {
    "image_url": "image_data",
    "video_url": "video_data",
    "audio_url": "audio_data",
}
# Sound as OpenAI's clients send it: the frontend knows the part and drops what is in it.
INLINE_AUDIO = "input_audio"
# Where a request carries embeddings of its media instead (`requests.multimodal_embedded`).
EMBEDDED = "embedded_media"


class MediaPart(msgspec.Struct, frozen=True):
    """One part: a URL, or the frontend's description of pixels that it holds ready."""

    kind: str
    position: int
    url: str = ""
    decoded: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        """What an error calls it, e.g. ``image_url[0]``."""
        return f"{self.kind}[{self.position}]"


class MediaSupport(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker takes.

    ``refusals``: reason by kind, for what it does not take; ``most``: parts per request by kind.
    """

    refusals: Mapping[str, str] = {}
    most: Mapping[str, int] = {}
    frontend_decoding: bool = False


ANY_MEDIA = MediaSupport(frontend_decoding=True)


def multimodal_fields(request: Mapping[str, Any], limits: EngineLimits) -> dict[str, Any]:
    """SGLang's ``image_data``, ``video_data`` and ``audio_data``, with the parts where their
    content will stand; empty without media."""
    kinds = _kinds_in_data(request) or _kinds_in_messages(request)
    if kinds and not limits.accepts_media:
        raise InvalidRequest(
            "messages", f"this model accepts text only, got a part of type {kinds[0]}"
        )
    parts = media_parts(request, ANY_MEDIA) if kinds else ()
    if request.get(EMBEDDED) is not None:
        return dict.fromkeys(ENGINE_FIELDS.values())
    return by_field(parts, parts)


def by_field(parts: Sequence[MediaPart], contents: Sequence[Any]) -> dict[str, list[Any]]:
    """``contents``, one per part, under the names of SGLang's request."""
    fields: dict[str, list[Any]] = {}
    for part, content in zip(parts, contents, strict=True):
        fields.setdefault(ENGINE_FIELDS[part.kind], []).append(content)
    return fields


def has_media(fields: Mapping[str, Any]) -> bool:
    """Whether a mapped request still needs the content of its media."""
    return not _MEDIA_FIELDS.isdisjoint(fields)


_MEDIA_FIELDS = frozenset(ENGINE_FIELDS.values())


def media_parts(request: Mapping[str, Any], support: MediaSupport) -> tuple[MediaPart, ...]:
    """All parts in the order of SGLang's fields; raises InvalidRequest naming the faulty one."""
    in_data, in_messages = _kinds_in_data(request), _kinds_in_messages(request)
    for kind in (*in_data, *in_messages):
        if kind in support.refusals:
            raise InvalidRequest("messages", f"a part of type {kind}: {support.refusals[kind]}")
    missing = [kind for kind in in_messages if kind not in in_data]
    if missing:
        raise InvalidRequest(
            "multi_modal_data", f"the frontend passed on no {missing[0]} although messages have it"
        )
    if not in_data:
        return ()
    _refuse_cache_ids(request)
    media = section(request, "multi_modal_data")
    found: list[MediaPart] = []
    for kind in in_data:
        items = sequence(media, kind)
        most = support.most.get(kind)
        if most is not None and len(items) > most:
            raise InvalidRequest(
                "messages", f"has {len(items)} parts of type {kind}, this worker takes {most}"
            )
        found += [_part(kind, position, item, support) for position, item in enumerate(items)]
    return tuple(found)


def _part(kind: str, position: int, item: Any, support: MediaSupport) -> MediaPart:
    name = f"{kind}[{position}]"
    if isinstance(item, Mapping) and "Decoded" in item:
        decoded = item["Decoded"]
        if not support.frontend_decoding:
            raise InvalidRequest(name, "decoded media needs a worker with --frontend-decoding")
        if not isinstance(decoded, Mapping):
            raise InvalidRequest(name, "the frontend's description of it is no object")
        return MediaPart(kind, position, decoded=decoded)
    url = item.get("Url") if isinstance(item, Mapping) else item
    if not isinstance(url, str) or not url:
        raise InvalidRequest(name, "must be a URL")
    return MediaPart(kind, position, url)


def _refuse_cache_ids(request: Mapping[str, Any]) -> None:
    """Ids that let a client skip the upload: another client's image could answer for it."""
    for kind, ids in section(request, "multi_modal_uuids").items():
        if any(one is not None for one in (ids if isinstance(ids, list) else [ids])):
            raise InvalidRequest(str(kind), "cache ids (uuid) are not supported with SGLang")


def _kinds_in_data(request: Mapping[str, Any]) -> list[str]:
    media = section(request, "multi_modal_data")
    unknown = sorted(kind for kind in media if kind not in ENGINE_FIELDS and media[kind])
    if unknown:
        known = ", ".join(ENGINE_FIELDS)
        raise InvalidRequest("multi_modal_data", f"{unknown[0]} is not known; accepted: {known}")
    return [kind for kind in ENGINE_FIELDS if sequence(media, kind)]


def _kinds_in_messages(request: Mapping[str, Any]) -> list[str]:
    """Media parts of the original messages, which the frontend keeps beside the tokens of a
    request with media. Raises InvalidRequest for a part whose content is lost."""
    messages = section(request, "extra_args").get("messages")
    kinds: set[str] = set()
    for message in messages if isinstance(messages, list) else ():
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            kind = part.get("type") if isinstance(part, Mapping) else None
            if kind == INLINE_AUDIO:
                raise InvalidRequest(
                    "messages",
                    f"the frontend does not pass on what a part of type {INLINE_AUDIO} holds; send "
                    "the clip as audio_url with a data: URI",
                )
            if isinstance(kind, str) and kind in ENGINE_FIELDS:
                kinds.add(kind)
    return sorted(kinds)
