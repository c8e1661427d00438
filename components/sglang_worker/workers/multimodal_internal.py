"""Internal multimodal workers: they take embeddings from an encode worker and generate.

No frontend routes to them; their card has no OpenAI surface and only says that they are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sglang_worker.config.worker_config import WorkerType
from sglang_worker.engine import compat_multimodal
from sglang_worker.engine.dynamo_compat_embeddings import EmbeddingReceiver
from sglang_worker.requests.disaggregation import bootstrap_fields
from sglang_worker.requests.errors import EndedByEngine, InvalidRequest
from sglang_worker.requests.multimodal import EMBEDDED
from sglang_worker.requests.multimodal_embedded import EmbeddedMedia, embedded_media
from sglang_worker.workers import disaggregated_decode, prefill
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.decode import Variant, token_worker
from sglang_worker.workers.media_stage import Preparations, PreparedMedia
from sglang_worker.workers.multimodal_native import require_media
from sglang_worker.workers.service import WorkerService

NO_SURFACE = ("none",)


class ReceivedMedia:
    """`media_stage.MediaStage`: fetches what the encode worker holds ready."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._receiver: EmbeddingReceiver | None = None
        self._preparations = Preparations()

    async def prepare(self, request: Mapping[str, Any], context: Any) -> PreparedMedia:
        if request.get(EMBEDDED) is None:
            raise InvalidRequest(
                "multi_modal_data", "this worker takes embeddings from an encode worker only"
            )
        return await self._preparations.run(self._receive(embedded_media(request)), context)

    async def _receive(self, media: EmbeddedMedia) -> PreparedMedia:
        if self._receiver is None:
            self._receiver = EmbeddingReceiver(self._mode)
        try:
            rows, release = await self._receiver.receive(media.transfer)
        except ValueError as error:
            raise InvalidRequest(f"{EMBEDDED}.transfer", str(error)) from None
        except OSError as error:
            raise EndedByEngine(f"the embeddings could not be fetched: {error}") from error
        if len(rows.shape) != 2 or rows.shape[0] != media.rows:
            release()
            raise InvalidRequest(
                EMBEDDED, f"has items of {media.rows} rows, and {tuple(rows.shape)} were sent"
            )
        return PreparedMedia(
            fields=compat_multimodal.embedding_fields(media.items, rows), release=release
        )

    def fail_all(self) -> None:
        self._preparations.fail_all()


class DescribedMedia:
    """`media_stage.MediaStage` of decode: the KV cache comes from prefill, so positions are all
    that is needed of the media."""

    async def prepare(self, request: Mapping[str, Any], context: Any) -> PreparedMedia:
        items = embedded_media(request).items
        room = bootstrap_fields(request)["bootstrap_room"]
        return PreparedMedia(fields=compat_multimodal.position_fields(items, room))

    def fail_all(self) -> None:
        """Nothing waits here."""


def pd_variant(context: WorkerContext) -> Variant:
    return Variant(media=received)


def prefill_variant(context: WorkerContext) -> Variant:
    return msgspec.structs.replace(prefill.variant(context), media=received)


def decode_variant(context: WorkerContext) -> Variant:
    return msgspec.structs.replace(
        disaggregated_decode.variant(context), media=lambda _: DescribedMedia()
    )


def received(context: WorkerContext) -> ReceivedMedia:
    return ReceivedMedia(context.config.embedding_transfer_mode)


_VARIANTS: Mapping[WorkerType, Callable[[WorkerContext], Variant]] = {
    WorkerType.INTERNAL_MULTIMODAL: pd_variant,
    WorkerType.INTERNAL_MULTIMODAL_PREFILL: prefill_variant,
    WorkerType.INTERNAL_MULTIMODAL_DECODE: decode_variant,
}


def build(context: WorkerContext) -> WorkerService:
    require_media(context)
    variant = _VARIANTS[context.config.worker_type](context)
    fields = {**variant.fields, "endpoint_types": NO_SURFACE}
    return token_worker(context, msgspec.structs.replace(variant, fields=fields))
