"""Bounds on media, from Dynamo's variables and SGLang's flags.

The variables are those of ``dynamo.common.http``; unlike there, a malformed value is a startup
error, and ``http://`` to public addresses is allowed without an opt-in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sglang_worker.config.booleans import parse_boolean
from sglang_worker.errors import ConfigError

ALLOW_INTERNAL = "DYN_MM_ALLOW_INTERNAL"
TRUST_PROXY = "DYN_MM_TRUST_EGRESS_PROXY"
FILE_SIZE = "DYN_MM_MAX_FILE_SIZE_MB"
DATA_SIZE = "DYN_MM_MAX_DATA_URL_MB"
MIB = 1 << 20
# A request may not make the worker hold more than this many media of the largest size: as files,
# and decoded, for kilobytes may become gigabytes.
FILES_PER_REQUEST = 4


class MediaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``allowed_hosts``: exact names, empty allows every host; ``max_bytes`` is per medium."""

    max_bytes: int = 64 * MIB
    max_data_uri_bytes: int = 16 * MIB
    allowed_hosts: frozenset[str] = frozenset()
    # Loopback, private and link-local addresses may be fetched from.
    allow_internal: bool = False
    # Requests go through the environment's proxy, which then resolves names by its own rules.
    trust_proxy: bool = False
    # Per medium, without the time that it waits for its places among the downloads.
    total_timeout_s: float = 30.0
    # For each such place; and for all media of one request, waiting included.
    place_timeout_s: float = 10.0
    request_timeout_s: float = 90.0
    # Shared by the addresses of a name, which are tried in turn.
    connect_timeout_s: float = 10.0
    # A server must begin its answer within the window and then go on at this rate or better, or its
    # download ends and leaves its place: even a bad mobile connection is ten times as fast, while
    # one that drips bytes to hold a place would hold it for all of ``total_timeout_s``. The window
    # is long enough for a server that makes the image first.
    min_rate_bytes_per_s: int = 1 << 10
    min_rate_window_s: float = 10.0
    max_redirects: int = 3
    # More would let a small file fill the memory when it is decoded.
    max_pixels: int = 89_478_485
    # Per frame of a video: 8K.
    max_frame_pixels: int = 8192 * 4320
    # Of all frames that SGLang keeps of a request's videos, and of those of all requests whose
    # videos are being processed: up to 25 bytes each, with its processor's copies.
    max_video_pixels: int = 1 << 27
    # Of all clips of a request, at the models' rate or their own: an hour of 16 kHz, 25 minutes of
    # 44.1 kHz. They come out of the videos' room.
    max_audio_samples: int = 1 << 26
    # Of all frames of a request's videos; the decoder walks through those that nobody keeps too.
    max_walked_pixels: int = 1 << 33

    @property
    def max_request_bytes(self) -> int:
        return FILES_PER_REQUEST * self.max_bytes

    @property
    def max_request_pixels(self) -> int:
        return FILES_PER_REQUEST * self.max_pixels


def read_settings(
    environ: Mapping[str, str],
    *,
    allowed_media_domains: Sequence[str] = (),
    media_url_max_file_size_mb: int | None = None,
) -> MediaSettings:
    """``media_url_max_file_size_mb``: SGLang's flag if the operator gave it, else the variable
    counts. Raises ConfigError naming the variable or flag."""
    if media_url_max_file_size_mb is None:
        max_bytes = _mebibytes(environ, FILE_SIZE, 64)
    elif media_url_max_file_size_mb > 0:
        max_bytes = media_url_max_file_size_mb * MIB
    else:
        raise ConfigError(
            f"--media-url-max-file-size-mb {media_url_max_file_size_mb}: must be at least 1, this "
            "worker holds media in memory and fetches nothing without a bound"
        )
    return MediaSettings(
        max_bytes=max_bytes,
        max_data_uri_bytes=_mebibytes(environ, DATA_SIZE, 16),
        allowed_hosts=frozenset(name.strip().rstrip(".").lower() for name in allowed_media_domains),
        allow_internal=parse_boolean(ALLOW_INTERNAL, environ.get(ALLOW_INTERNAL, "")),
        trust_proxy=parse_boolean(TRUST_PROXY, environ.get(TRUST_PROXY, "")),
    )


def _mebibytes(environ: Mapping[str, str], variable: str, default: int) -> int:
    text = environ.get(variable, "").strip()
    if not text:
        return default * MIB
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{variable}={text!r} is not a whole number of MiB of at least 1")
    return int(text) * MIB
