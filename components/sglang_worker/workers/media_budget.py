"""What the media of one request may take, and what they hold while they are being processed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from sglang_worker.engine.compat_video import VideoFacts
from sglang_worker.media.audio import ClipFacts
from sglang_worker.media.errors import MediaError
from sglang_worker.media.load import Medium
from sglang_worker.media.settings import MediaSettings

# A sample takes SGLang up to 55 bytes where a feature extractor wants the whole clip, a pixel 25.
ROOM_OF_A_SAMPLE = 2


class Held:
    """What a request holds until its media are processed, or until nobody waits for it and no
    thread works on it any more. Used from one event loop."""

    def __init__(self) -> None:
        self._give_back: list[Callable[[], None]] = []
        self._released = False
        self._working = 0

    def add(self, give_back: Callable[[], None]) -> None:
        self._give_back.append(give_back)
        # A preparation that was cut short may still get that far.
        self._settle()

    def keep_for(self, work: Future[Any]) -> None:
        """A thread goes on with ``work`` although its request was given up, and needs the room."""
        loop = asyncio.get_running_loop()
        self._working += 1

        def over(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._worked)

        work.add_done_callback(over)

    def _worked(self) -> None:
        self._working -= 1
        self._settle()

    def release(self) -> None:
        self._released = True
        self._settle()

    def _settle(self) -> None:
        if not self._released or self._working:
            return
        while self._give_back:
            self._give_back.pop()()


class Budget:
    """Bytes, pixels and samples that one request may still bring along.

    ``clips``: of its parts of sound, by position.
    """

    def __init__(self, settings: MediaSettings) -> None:
        self._settings = settings
        self._left_bytes = settings.max_request_bytes
        self._left_pixels = settings.max_request_pixels
        self._kept_pixels = 0
        self._walked_pixels = 0
        self._samples = 0
        self.clips: dict[int, ClipFacts] = {}

    @property
    def room(self) -> int:
        """What the videos and clips become, in pixels."""
        return self._kept_pixels + ROOM_OF_A_SAMPLE * self._samples

    def take(self, medium: Medium) -> None:
        self._left_bytes -= len(medium.content)
        self._left_pixels -= medium.pixels
        if self._left_bytes < 0:
            total = self._settings.max_request_bytes
            raise MediaError(f"all media of the request exceed {total} bytes")
        if self._left_pixels < 0:
            total = self._settings.max_request_pixels
            raise MediaError(f"all images of the request exceed {total} pixels")

    def take_video(self, video: VideoFacts) -> None:
        self._walked_pixels += video.frames * video.frame_pixels
        self._kept_pixels += video.taken * video.frame_pixels
        walked, kept = self._settings.max_walked_pixels, self._settings.max_video_pixels
        if self._walked_pixels > walked:
            raise MediaError(
                f"all frames of the request's videos, read or skipped, exceed {walked} pixels"
            )
        if self._kept_pixels > kept:
            raise MediaError(f"the frames read of the request's videos exceed {kept} pixels")

    def take_clip(self, position: int, clip: ClipFacts) -> None:
        self.clips[position] = clip
        self._samples += clip.samples
        most = self._settings.max_audio_samples
        if self._samples > most:
            raise MediaError(f"all clips of the request exceed {most} samples of one channel")
