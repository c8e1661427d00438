"""SGLang's vision encoder (``disaggregation/encoder/server.py``, read in 0.5.23), by probing.

Its constructor loads the model's encoder alone (``encoder_only``); `encode` runs on the event
loop that owns it. Needs neither a scheduler nor a tokenizer manager.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from sglang_worker.errors import EngineStartError
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.multimodal import ENGINE_FIELDS

# Any free port: the process group has one member.
_GROUP = "tcp://127.0.0.1:0"
_PREPROCESSING = "Failed to process mm items: "
# Video would also need the time between its frames handed on, for the positions.
_MODALITIES = {"image_url": "IMAGE"}
_PLACEHOLDERS = {"image_url": "image_token_id"}


class EncodedMedium(msgspec.Struct, frozen=True):
    """``grid``: patches in time, height, width; ``rows``: a tensor (tokens, width) on the CPU."""

    grid: tuple[int, ...]
    rows: Any


class EncodeFailed(Exception):
    """The encoder, not the request, is at fault."""


def new_encoder(server_args: Any) -> Any:
    """Load the encoder on the calling thread; raises what SGLang raises."""
    try:
        from sglang.srt.disaggregation.encoder.server import MMEncoder
        from sglang.srt.runtime_context import publish
    except ImportError as error:
        raise EngineStartError(
            f"the installed SGLang has no encoder that runs alone: {error}"
        ) from error
    publish(server_args, role="encoder")
    return MMEncoder(server_args=server_args, dist_init_method=_GROUP, rank=0)


def placeholders(encoder: Any) -> dict[str, int]:
    """The token that stands for a medium in the prompt, by kind of part."""
    config = encoder.model_config.hf_config
    found = {kind: getattr(config, name, None) for kind, name in _PLACEHOLDERS.items()}
    return {kind: token for kind, token in found.items() if isinstance(token, int)}


def media_refusals(encoder: Any, known: Mapping[str, int]) -> dict[str, str]:
    """Kinds that this encoder does not take, with the reason."""
    refusals = dict.fromkeys(ENGINE_FIELDS, "an encode worker takes images only")
    for kind, modality in _MODALITIES.items():
        if kind in known and encoder.supports_modality(_modality(modality)):
            del refusals[kind]
    return refusals


async def encode(
    encoder: Any, kind: str, contents: Sequence[Any], request_id: str, *, keeps_results: bool
) -> list[EncodedMedium]:
    """Encode media of one kind: bytes or Pillow images, one result each.

    ``keeps_results``: SGLang's own cache of embeddings works per call, so each medium gets one;
    else all share one forward pass. Raises InvalidRequest without a position, or EncodeFailed.
    """
    batches = [[one] for one in contents] if keeps_results else [list(contents)]
    found: list[EncodedMedium] = []
    for number, batch in enumerate(batches):
        found += await _encode_batch(encoder, kind, batch, f"{request_id}-{number}")
    return found


async def _encode_batch(
    encoder: Any, kind: str, contents: Sequence[Any], request_id: str
) -> list[EncodedMedium]:
    ids = [f"{request_id}-{position}" for position in range(len(contents))]
    requests = [
        {"req_id": one, "num_parts": 1, "part_idx": 0, "mm_items": [content], "hashes": None}
        for one, content in zip(ids, contents, strict=True)
    ]
    try:
        for *_, message, code in await encoder.batch_encode(requests, _modality(_MODALITIES[kind])):
            if message is not None:
                raise _failure(kind, str(message), code)
        return [_result(encoder.req_states[one].embedding_data) for one in ids]
    finally:
        for one in ids:
            await encoder.release_request(one)


def _result(data: Any) -> EncodedMedium:
    grid = data.grid_dim.tolist() if hasattr(data.grid_dim, "tolist") else list(data.grid_dim)
    if len(grid) != 1 or len(grid[0]) != 3:
        raise EncodeFailed(f"the encoder answered with a patch grid of an unknown form: {grid}")
    return EncodedMedium(tuple(int(axis) for axis in grid[0]), data.embedding)


def _failure(kind: str, message: str, code: Any) -> Exception:
    if code != HTTPStatus.BAD_REQUEST:
        return EncodeFailed(message)
    # SGLang's text may hold the content itself when it could not be opened.
    _, found, reason = message.partition(_PREPROCESSING)
    named = kind.split("_")[0]
    return InvalidRequest(kind, reason if found else f"cannot be decoded as {named}")


def _modality(name: str) -> Any:
    from sglang.srt.managers.schedule_batch import Modality

    return Modality[name]


def probe_request_id(request_id: str) -> str:
    """An id by which SGLang leaves its caches out."""
    from sglang.srt.constants import HEALTH_CHECK_RID_PREFIX

    return f"{HEALTH_CHECK_RID_PREFIX}{request_id}"
