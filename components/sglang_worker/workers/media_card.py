"""The model card of a worker that makes images or videos: a name and what it makes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from sglang_worker.engine import dynamo_compat_generated
from sglang_worker.engine.dynamo_compat import Handler, ServedEndpoint
from sglang_worker.workers.service import RequestsInFlight, WorkerService

logger = logging.getLogger(__name__)


class MediaCard(msgspec.Struct, frozen=True):
    """``model_type``: the name in Dynamo's ModelType, ``Images`` or ``Videos``."""

    source: str
    name: str
    aliases: tuple[str, ...]
    model_type: str


class MediaService(WorkerService):
    """`WorkerService` with a card that knows neither tokens nor KV blocks."""

    def __init__(
        self,
        main: ServedEndpoint,
        handler: Handler,
        requests: RequestsInFlight,
        card: MediaCard,
        *,
        health_payload: Mapping[str, Any],
        first_requests: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(
            main,
            handler,
            requests,
            # Of the card the base reads the name, outside of what is overridden here.
            cast(Any, card),
            health_payload=health_payload,
            first_requests=first_requests,
        )
        self._media_card = card

    async def publish(self) -> None:
        card = self._media_card
        await dynamo_compat_generated.publish_media_card(
            self.main.endpoint, card.model_type, card.source, card.name, card.aliases
        )
        logger.info(
            "registered model %s (%s) as instance %d of %s",
            card.name,
            card.model_type,
            self.worker_id,
            self.main.address.path,
        )


def media_payload(
    key: str, default: Mapping[str, Any], override: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The health payload, or the operator's own, with the marker ``key``."""
    return {**(default if override is None else override), key: True}
