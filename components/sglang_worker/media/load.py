"""One medium from what the client wrote to bytes that SGLang may decode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from sglang_worker.media import data_uri, images
from sglang_worker.media.errors import MediaError
from sglang_worker.media.fetch import Fetcher
from sglang_worker.media.room import Room
from sglang_worker.media.settings import MediaSettings

Value = TypeVar("Value")
CHECKS_AT_ONCE = 4


class Medium(msgspec.Struct, frozen=True):
    """``pixels``: what it becomes when it is decoded, which its bytes do not show; 0 for media
    other than images."""

    content: bytes
    pixels: int = 0


class MediaLoader:
    """Used from one event loop."""

    def __init__(self, settings: MediaSettings, fetcher: Fetcher | None = None) -> None:
        self.settings = settings
        self._fetcher = fetcher or Fetcher(settings)
        # Not asyncio's pool: what others block there must not keep media waiting, nor media them.
        self._checks = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="media")
        wait_s = settings.place_timeout_s
        self._video_turn = Room(1, wait_s, "one more check of a video")
        # In pixels of frames that are kept; samples of sound count as some.
        self.decoded_room = Room(settings.max_video_pixels, wait_s, "what videos and clips become")

    async def load(self, url: str, *, is_image: bool) -> Medium:
        """The medium, an image only if it is one. Raises MediaError or MediaBusy."""
        content: bytes | None = None
        if not data_uri.is_data_uri(url):
            content = await self._fetcher.fetch(url)
        # Megabytes of base64 and foreign headers are no work for the event loop's thread.
        return await self.aside(self._checked, url, content, is_image)

    async def aside(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """Run what computes over media in a thread of theirs."""
        return await asyncio.get_running_loop().run_in_executor(self._checks, function, *arguments)

    def begin(self, function: Callable[..., Value], *arguments: Any) -> Future[Value]:
        """As `aside`, for whoever has to know when the thread is done, not only its waiter."""
        return self._checks.submit(function, *arguments)

    async def video_turn(self, function: Callable[..., Value], *arguments: Any) -> Value:
        """As `aside`, one at a time: opening a video takes up to hundreds of megabytes. Raises
        MediaBusy."""
        give_back = await self._video_turn.take(1)
        loop = asyncio.get_running_loop()
        work = self.begin(function, *arguments)
        # Not when the waiter is cancelled: the thread goes on.
        work.add_done_callback(lambda _: loop.call_soon_threadsafe(give_back))
        return await asyncio.wrap_future(work)

    def _checked(self, url: str, content: bytes | None, is_image: bool) -> Medium:
        if content is None:
            content = data_uri.decode(url, self.settings.max_data_uri_bytes)
        if not is_image:
            return Medium(content)
        return Medium(content, images.check_header(content, self.settings.max_pixels))

    async def first_damaged(self, contents: Sequence[bytes]) -> int | None:
        """Which of some images cannot be decoded, for an error that names it."""
        for position, content in enumerate(contents):
            try:
                await self.aside(images.check_pixels, content)
            except MediaError:
                return position
        return None
