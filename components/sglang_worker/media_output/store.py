"""Stores finished media on any file system that fsspec knows (``--media-output-fs-url``)."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Any
from urllib.parse import urlsplit

from sglang_worker.errors import ConfigError
from sglang_worker.media.threads import BlockingCalls

FLAG = "--media-output-fs-url"
HTTP_FLAG = "--media-output-http-url"
LOCAL = ("file", "local")
# A video may be hundreds of megabytes, and storage that hangs must not hold requests for ever.
WRITE_TIMEOUT_S = 300.0
WRITES_AT_ONCE = 32

logger = logging.getLogger(__name__)


class StorageFailed(Exception):
    """The file system refused the file; the message is for the log, it may name buckets."""


class MediaStore:
    """One folder (or bucket) and the addresses under which its files are reached."""

    def __init__(
        self, system: Any, root: str, public: str, *, timeout_s: float = WRITE_TIMEOUT_S
    ) -> None:
        """``root`` is a path of ``system``, ``public`` the beginning of every URL; ``timeout_s``
        bounds the wait for one file."""
        self._system = system
        self._root = root
        self._public = public
        self._timeout_s = timeout_s
        self._writes = BlockingCalls("media-storage", WRITES_AT_ONCE)

    @property
    def hanging(self) -> int:
        """Writes that have not returned, given up or not."""
        return self._writes.running

    async def save(self, content: bytes, folder: str, extension: str) -> str:
        """Write a new file, return its URL. Names are random: knowing one tells no other.

        Raises StorageFailed.
        """
        name = f"{folder}/{uuid.uuid4().hex}.{extension}"
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._writes.run(self._write, f"{self._root}/{name}", content)
        except asyncio.TimeoutError:
            raise StorageFailed(f"not written within {self._timeout_s:g} s") from None
        except Exception as error:
            # Every back end has errors of its own.
            raise StorageFailed(f"{type(error).__name__}: {error}") from error
        return f"{self._public}/{name}"

    def _write(self, path: str, content: bytes) -> None:
        self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._system.pipe_file(path, content)


def open_store(fs_url: str, http_url: str | None) -> MediaStore:
    """Raises ConfigError naming the flag: unknown protocol, missing library, unusable folder.

    A local folder is created and written to once; a remote one is not touched before the first
    file, so that a worker starts while its storage is away.
    """
    import fsspec

    try:
        system, root = fsspec.core.url_to_fs(fs_url)
    except (ImportError, ValueError) as error:
        raise ConfigError(f"{FLAG}={_shown(fs_url)}: {error}") from None
    except Exception as error:
        raise ConfigError(f"{FLAG}={_shown(fs_url)}: {type(error).__name__}: {error}") from None
    root = str(root).rstrip("/")
    if not root:
        raise ConfigError(f"{FLAG}={_shown(fs_url)} names no folder or bucket")
    local = _protocol(system) in LOCAL
    if local:
        _require_writable(system, root, fs_url)
    return MediaStore(system, root, _public(http_url, system, root))


def check_http_url(http_url: str | None) -> None:
    if http_url is None:
        return
    parts = urlsplit(http_url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"{HTTP_FLAG}={http_url!r} is not an http(s) address")
    if parts.query or parts.fragment:
        raise ConfigError(f"{HTTP_FLAG}={http_url!r}: file names are added, so it ends in a path")


def _public(http_url: str | None, system: Any, root: str) -> str:
    check_http_url(http_url)
    if http_url is not None:
        return http_url.rstrip("/")
    return str(system.unstrip_protocol(root)).rstrip("/")


def _protocol(system: Any) -> str:
    protocol = system.protocol
    return str(protocol if isinstance(protocol, str) else protocol[0])


def _require_writable(system: Any, root: str, fs_url: str) -> None:
    probe = f"{root}/.{uuid.uuid4().hex}"
    try:
        system.makedirs(root, exist_ok=True)
        system.pipe_file(probe, b"")
        system.rm_file(probe)
    except OSError as error:
        raise ConfigError(
            f"{FLAG}={_shown(fs_url)} cannot be written to: {error.strerror or error}"
        ) from None


def _shown(fs_url: str) -> str:
    """Without credentials, which some URLs carry."""
    parts = urlsplit(fs_url)
    if "@" not in parts.netloc:
        return repr(fs_url)
    return repr(parts._replace(netloc="…@" + parts.netloc.rpartition("@")[2]).geturl())
