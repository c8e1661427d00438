"""A request on its way from an encode worker to an internal worker: embeddings stand for media.

The encode worker replaces each placeholder token by as many as the medium has embedding rows,
and sends beside the tokens where the rows can be fetched. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.multimodal import EMBEDDED, ENGINE_FIELDS
from sglang_worker.requests.validation import integer, section, sequence, string, token_ids

GRID_AXES = 3


class EmbeddedItem(msgspec.Struct, frozen=True):
    """One encoded medium: its patch grid (time, height, width), and its embedding rows."""

    kind: str
    grid: tuple[int, ...]
    rows: int


class EmbeddedMedia(msgspec.Struct, frozen=True):
    """``transfer``: how to fetch the rows of all items, in their order."""

    items: tuple[EmbeddedItem, ...]
    transfer: Mapping[str, Any]

    @property
    def rows(self) -> int:
        return sum(item.rows for item in self.items)


def forwarded(
    request: Mapping[str, Any],
    media: EmbeddedMedia,
    placeholders: Mapping[str, int],
) -> dict[str, Any]:
    """The request for the internal worker; ``placeholders``: token id by kind of part."""
    kept = {name: value for name, value in request.items() if name != "multi_modal_data"}
    kept["token_ids"] = expanded(token_ids(request, "token_ids"), media.items, placeholders)
    extra = section(request, "extra_args")
    # The original messages would say that media is missing.
    kept["extra_args"] = {name: value for name, value in extra.items() if name != "messages"}
    kept[EMBEDDED] = msgspec.to_builtins(media)
    return kept


def handed_over(request: Mapping[str, Any], first_chunk: Mapping[str, Any]) -> dict[str, Any]:
    """The request for decode once prefill has said where its KV cache will be; the embeddings
    are prefill's alone. Raises ValueError when the chunk does not say."""
    place = first_chunk.get("disaggregated_params")
    if not isinstance(place, Mapping):
        raise ValueError("the prefill worker did not say where its KV cache can be fetched")
    decode = {**request, "bootstrap_info": dict(place)}
    if request.get(EMBEDDED) is not None:
        decode[EMBEDDED] = {**section(request, EMBEDDED), "transfer": {}}
    return decode


def expanded(
    prompt: Sequence[int], items: Sequence[EmbeddedItem], placeholders: Mapping[str, int]
) -> list[int]:
    """The prompt with one placeholder token per embedding row."""
    waiting: dict[int, list[int]] = {}
    for item in items:
        waiting.setdefault(placeholders[item.kind], []).append(item.rows)
    for kind, token in placeholders.items():
        have, need = prompt.count(token), len(waiting.get(token, ()))
        if need and have != need:
            name = kind.split("_")[0]
            raise InvalidRequest(
                "messages", f"the prompt has {have} {name} placeholders for {need} {name} parts"
            )
    result: list[int] = []
    for token in prompt:
        rows = waiting.get(token)
        result.extend([token] * rows.pop(0) if rows else [token])
    return result


def embedded_media(request: Mapping[str, Any]) -> EmbeddedMedia:
    """What the encode worker sent; raises InvalidRequest for anything malformed."""
    source = section(request, EMBEDDED)
    items = tuple(_item(position, one) for position, one in enumerate(sequence(source, "items")))
    if not items:
        raise InvalidRequest(EMBEDDED, "has no items")
    return EmbeddedMedia(items, section(source, "transfer"))


def _item(position: int, source: Any) -> EmbeddedItem:
    name = f"{EMBEDDED}.items[{position}]"
    if not isinstance(source, Mapping):
        raise InvalidRequest(name, "must be an object")
    kind, rows = string(source, "kind"), integer(source, "rows", low=1)
    grid = token_ids(source, "grid")
    if kind is None or kind not in ENGINE_FIELDS or rows is None or len(grid) != GRID_AXES:
        raise InvalidRequest(name, "needs kind, rows and a grid of three numbers")
    return EmbeddedItem(kind, tuple(grid), rows)
