"""Registering a model that makes images or videos with Dynamo (ai-dynamo 1.6.1)."""

from __future__ import annotations

from typing import Any


async def publish_media_card(
    endpoint: Any, model_type: str, source: str, name: str, aliases: tuple[str, ...]
) -> None:
    """Attach the card to a served endpoint; raises on failure.

    For these model types the runtime reads no ``config.json`` and no tokenizer. Requests arrive
    as the client wrote them; one worker holds the whole pipeline and needs no peer.
    """
    from dynamo import llm

    await llm.register_model(
        llm.ModelInput.Text,
        getattr(llm.ModelType, model_type),
        endpoint,
        source,
        name,
        worker_type=llm.WorkerType.Aggregated,
        needs=[],
        model_aliases=list(aliases) or None,
    )
