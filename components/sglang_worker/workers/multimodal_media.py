"""Media that arrive as URLs, or as pixels that the frontend decoded, for SGLang's own processor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import compat_multimodal, compat_video
from sglang_worker.engine.compat_video import VideoFacts
from sglang_worker.engine.dynamo_compat_media import FrontendPixels
from sglang_worker.media import audio
from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.media.load import MediaLoader, Medium
from sglang_worker.media.settings import MediaSettings, read_settings
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.multimodal import MediaPart, MediaSupport, by_field, media_parts
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.media_budget import Budget, Held
from sglang_worker.workers.media_stage import Preparations, PreparedMedia, media_failure

IMAGE, VIDEO, AUDIO = "image_url", "video_url", "audio_url"
PARTS_AT_ONCE = 8


class RawMedia:
    """`media_stage.MediaStage`: SGLang gets the bytes, never a URL or a path."""

    def __init__(
        self, loader: MediaLoader, support: MediaSupport, pixels: FrontendPixels | None = None
    ) -> None:
        self._loader = loader
        self.support = support
        self._pixels = pixels
        self._preparations = Preparations()

    async def prepare(self, request: Mapping[str, Any], context: Any) -> PreparedMedia:
        held = Held()
        try:
            parts, contents = await self.contents(request, context, held)
        except BaseException:
            held.release()
            raise
        return PreparedMedia(
            fields=by_field(parts, contents), explain=explain, release=held.release
        )

    async def contents(
        self, request: Mapping[str, Any], context: Any, held: Held | None = None
    ) -> tuple[tuple[MediaPart, ...], list[Any]]:
        """The parts, and for each its bytes or its decoded pixels. ``held`` gets the room that
        frames of videos and samples of clips take up."""
        parts = media_parts(request, self.support)
        return parts, await self._preparations.run(self._load_all(parts, held), context)

    async def _hold(self, parts: Sequence[MediaPart], room: int, held: Held) -> None:
        # Once per request and after all its downloads: none waits for room while it holds some.
        try:
            held.add(await self._loader.decoded_room.take(room))
        except MediaBusy as error:
            name = next(part.name for part in parts if part.kind in (VIDEO, AUDIO))
            raise media_failure(name, error) from None

    async def _load_all(self, parts: Sequence[MediaPart], held: Held | None) -> list[Any]:
        budget = Budget(self._loader.settings)
        # What is under way when the budget runs out is bounded by this.
        slots = asyncio.Semaphore(PARTS_AT_ONCE)

        async def load(part: MediaPart) -> Any:
            async with slots:
                return await self._load(part, budget)

        tasks = [asyncio.ensure_future(load(part)) for part in parts]
        limit_s = self._loader.settings.request_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                contents = list(await asyncio.gather(*tasks))
        except asyncio.TimeoutError:
            raise InvalidRequest(
                "messages", f"its media could not all be fetched within {limit_s:g} s"
            ) from None
        finally:
            for task in tasks:
                task.cancel()
        if held is not None and budget.room:
            await self._hold(parts, budget.room, held)
        return [
            await self._sound(part, content, budget, held) if part.kind == AUDIO else content
            for part, content in zip(parts, contents, strict=True)
        ]

    async def _sound(
        self, part: MediaPart, content: bytes, budget: Budget, held: Held | None
    ) -> bytes:
        work = self._loader.begin(audio.as_wav, content, budget.clips[part.position])
        if held is not None:
            held.keep_for(work)
        try:
            return await asyncio.wrap_future(work)
        except MediaError as error:
            raise media_failure(part.name, error) from None

    async def _load(self, part: MediaPart, budget: Budget) -> Any:
        if part.decoded is not None:
            return await self._decoded(part, part.decoded, budget)
        try:
            medium = await self._loader.load(part.url, is_image=part.kind == IMAGE)
            budget.take(medium)
            if part.kind == VIDEO:
                limit = self._loader.settings.max_frame_pixels
                budget.take_video(
                    await self._loader.video_turn(checked_video, medium.content, limit)
                )
            if part.kind == AUDIO:
                clip = await self._loader.aside(audio.clip_facts, medium.content)
                budget.take_clip(part.position, clip)
        except (MediaError, MediaBusy) as error:
            raise media_failure(part.name, error) from None
        return medium.content

    async def _decoded(
        self, part: MediaPart, description: Mapping[str, Any], budget: Budget
    ) -> Any:
        if self._pixels is None:
            raise InvalidRequest(part.name, "decoded media needs a worker with --frontend-decoding")
        try:
            image = await self._pixels.load(part.kind, description)
            budget.take(Medium(b"", image.width * image.height))
        except MediaError as error:
            raise InvalidRequest(part.name, str(error)) from None
        except ValueError as error:
            raise InvalidRequest(part.name, f"the decoded pixels are unusable: {error}") from error
        return image

    async def first_damaged(self, kind: str, contents: Sequence[Any]) -> int | None:
        """Which of some media cannot be decoded; None when that cannot be told."""
        if kind != IMAGE or not all(type(one) is bytes for one in contents):
            return None
        return await self._loader.first_damaged(contents)

    def fail_all(self) -> None:
        self._preparations.fail_all()


def checked_video(content: bytes, max_frame_pixels: int) -> VideoFacts:
    """Raises MediaError."""
    try:
        video = compat_video.video_facts(content, max_frame_pixels)
    except compat_video.LargeFrame:
        raise MediaError(
            f"a frame has more than the {max_frame_pixels} pixels that are accepted"
        ) from None
    except ValueError:
        raise MediaError("cannot be decoded as video") from None
    fewest = compat_video.FEWEST_FRAMES
    if video.frames < fewest:
        raise MediaError(f"a video needs at least {fewest} frames, it has {video.frames}")
    return video


def explain(error: Exception) -> Exception:
    """SGLang's failure to decode a part, as the client's fault; anything else as it is."""
    if compat_multimodal.is_mismatch(error):
        return InvalidRequest("messages", compat_multimodal.MISMATCH)
    part = compat_multimodal.failed_part(error)
    if part is None:
        return error
    kind, position = part
    return InvalidRequest(f"{kind}[{position}]", f"cannot be decoded as {kind.split('_')[0]}")


def settings_of(config: WorkerConfig, environ: Mapping[str, str] = os.environ) -> MediaSettings:
    explicit = config.engine.explicit
    return read_settings(
        environ,
        allowed_media_domains=explicit.get("allowed_media_domains") or (),
        media_url_max_file_size_mb=explicit.get("media_url_max_file_size_mb"),
    )


def raw_media(
    config: WorkerConfig, refusals: Mapping[str, str], most: Mapping[str, int]
) -> RawMedia:
    """The stage of a worker whose model refuses the kinds in ``refusals``."""
    decoding = config.model.frontend_decoding
    return RawMedia(
        MediaLoader(settings_of(config)),
        MediaSupport(refusals=refusals, most=most, frontend_decoding=decoding),
        FrontendPixels() if decoding else None,
    )


def stage_of(context: WorkerContext) -> RawMedia | None:
    """The stage of a worker on `sgl.Engine`; None for a model that reads text alone."""
    engine = context.engine
    if not engine.limits.accepts_media:
        return None
    compat_multimodal.end_stop_iterations(engine.tokenizer_manager)
    return raw_media(
        context.config,
        compat_multimodal.media_refusals(engine.tokenizer_manager),
        compat_multimodal.most_parts(engine.server_args),
    )
