"""One medium from what the client wrote to bytes that SGLang may decode."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sglang_worker.media import data_uri, images
from sglang_worker.media.errors import MediaError
from sglang_worker.media.fetch import Fetcher
from sglang_worker.media.settings import MediaSettings


class MediaLoader:
    """Used from one event loop."""

    def __init__(self, settings: MediaSettings, fetcher: Fetcher | None = None) -> None:
        self.settings = settings
        self._fetcher = fetcher or Fetcher(settings)

    async def load(self, url: str, *, is_image: bool) -> bytes:
        """The content, of an image only if it is one. Raises MediaError."""
        content: bytes | None = None
        if not data_uri.is_data_uri(url):
            content = await self._fetcher.fetch(url)
        # Megabytes of base64 and foreign headers are no work for the event loop's thread.
        return await asyncio.to_thread(self._checked, url, content, is_image)

    def _checked(self, url: str, content: bytes | None, is_image: bool) -> bytes:
        if content is None:
            content = data_uri.decode(url, self.settings.max_data_uri_bytes)
        if is_image:
            images.check_header(content, self.settings.max_pixels)
        return content

    async def first_damaged(self, contents: Sequence[bytes]) -> int | None:
        """Which of some images cannot be decoded, for an error that names it."""
        for position, content in enumerate(contents):
            try:
                await asyncio.to_thread(images.check_pixels, content)
            except MediaError:
                return position
        return None
