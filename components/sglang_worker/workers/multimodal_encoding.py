"""From a request with media to one with embeddings, which an internal worker takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sglang_worker.engine.compat_encoder import EncodedMedium
from sglang_worker.engine.dynamo_compat_embeddings import EmbeddingSender, SentEmbeddings
from sglang_worker.engine.encoder import EncoderEngine
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.multimodal import MediaPart
from sglang_worker.requests.multimodal_embedded import EmbeddedItem, EmbeddedMedia, forwarded
from sglang_worker.workers.admission import Ticket
from sglang_worker.workers.media_stage import Preparations
from sglang_worker.workers.multimodal_media import RawMedia

PROBE_SIDE_PIXELS = 56


class Encoding:
    """The steps before a request goes on, for all requests of one worker. One event loop."""

    def __init__(
        self, engine: EncoderEngine, media: RawMedia, sender: Callable[[], EmbeddingSender]
    ) -> None:
        """``sender`` is called once, on the loop that will use what it makes."""
        self._engine = engine
        self._media = media
        self._make_sender = sender
        self._sender: EmbeddingSender | None = None
        self._preparations = Preparations()
        # asyncio keeps only weak references to tasks.
        self._settling: set[asyncio.Task[None]] = set()

    async def prepare(
        self, request: Mapping[str, Any], context: Any
    ) -> tuple[Mapping[str, Any], SentEmbeddings | None]:
        """The request for the internal worker, and what waits to be fetched for it.

        Raises InvalidRequest naming the part, `media_stage.ClientGone`, EndedByEngine after
        `fail_all`, or `compat_encoder.EncodeFailed`.
        """
        if not isinstance(request, Mapping):
            raise InvalidRequest("request", "must be an object")
        parts, contents = await self._media.contents(request, context)
        if not parts:
            return request, None
        media = await self._preparations.run(self._encode(parts, contents), context)
        items = tuple(
            EmbeddedItem(part.kind, one.grid, int(one.rows.shape[0]))
            for part, one in zip(parts, media, strict=True)
        )
        # Its prompt is checked before anything is sent.
        onward = forwarded(request, EmbeddedMedia(items, {}), self._engine.placeholders)
        sent = await self._send([one.rows for one in media])
        onward = forwarded(request, EmbeddedMedia(items, sent.transfer), self._engine.placeholders)
        return onward, sent

    async def _encode(
        self, parts: Sequence[MediaPart], contents: Sequence[Any]
    ) -> list[EncodedMedium]:
        found: list[EncodedMedium] = []
        for kind in dict.fromkeys(part.kind for part in parts):
            of_kind = [one for part, one in zip(parts, contents, strict=True) if part.kind == kind]
            try:
                found += await self._engine.encode(kind, of_kind)
            except InvalidRequest as error:
                position = await self._media.first_damaged(kind, of_kind)
                if position is None:
                    raise
                raise InvalidRequest(f"{kind}[{position}]", error.message) from None
        return found

    async def _send(self, rows: Sequence[Any]) -> SentEmbeddings:
        import torch

        if self._sender is None:
            self._sender = self._make_sender()
        return await self._sender.send(torch.cat(list(rows)))

    async def probe(self) -> None:
        """Encode a small image; raises what encoding raises."""
        await self._engine.encode("image_url", [probe_image()], probe=True)

    def settle(self, sent: SentEmbeddings | None, ticket: Ticket) -> None:
        """The request has left: clear its embeddings away, then it no longer counts."""
        if sent is None:
            ticket.release()
            return
        task = asyncio.get_running_loop().create_task(_settle(sent, ticket))
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)

    def fail_all(self) -> None:
        self._media.fail_all()
        self._preparations.fail_all()


async def _settle(sent: SentEmbeddings, ticket: Ticket) -> None:
    try:
        await sent.settle()
    finally:
        ticket.release()


def probe_image() -> Any:
    from PIL import Image

    return Image.new("RGB", (PROBE_SIDE_PIXELS, PROBE_SIDE_PIXELS))
