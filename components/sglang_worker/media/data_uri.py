"""``data:`` URIs (RFC 2397). Pure."""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote_to_bytes

from sglang_worker.media.errors import MediaError

SCHEME = "data:"


def is_data_uri(url: str) -> bool:
    return url[: len(SCHEME)].lower() == SCHEME


def decode(url: str, max_bytes: int) -> bytes:
    """The content; ``max_bytes`` bounds the URI as it was sent. Raises MediaError."""
    if len(url) > max_bytes:
        raise MediaError(f"the data URI is longer than {max_bytes} bytes")
    head, comma, payload = url[len(SCHEME) :].partition(",")
    if not comma:
        raise MediaError("the data URI has no comma before its content")
    if not payload.isascii():
        raise MediaError("the data URI is not ASCII")
    raw = unquote_to_bytes(payload) if "%" in payload else payload.encode()
    if head.rpartition(";")[2].strip().lower() != "base64":
        content = raw
    else:
        try:
            content = base64.b64decode(b"".join(raw.split()), validate=True)
        except (binascii.Error, ValueError):
            raise MediaError("the data URI is not valid base64") from None
    if not content:
        raise MediaError("the data URI is empty")
    return content
