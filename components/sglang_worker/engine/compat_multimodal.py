"""What SGLang's tokenizer manager can do with media, found by probing (read in 0.5.23)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sglang_worker.engine.compat_video import VIDEO_DECODERS, has_video_decoder
from sglang_worker.media import audio
from sglang_worker.requests.multimodal import ENGINE_FIELDS
from sglang_worker.requests.multimodal_embedded import EmbeddedItem

# ``multimodal/processors/base_processor.py``: which part could not be loaded.
_FAILED_PART = re.compile(r"loading (IMAGE|VIDEO|AUDIO) data at index (\d+)")
MISMATCH = "the prompt has placeholders for more media than there are parts"
_KINDS = {"IMAGE": "image_url", "VIDEO": "video_url", "AUDIO": "audio_url"}
_TOKENS = {"image_url": "image", "video_url": "video", "audio_url": "audio"}
NO_AUDIO_DECODER = f"decoding audio needs the package {audio.LIBRARY}, which is not installed"
NO_VIDEO_DECODER = f"decoding video needs one of {', '.join(VIDEO_DECODERS)}, none is installed"


def media_refusals(tokenizer_manager: Any) -> dict[str, str]:
    """Kinds of parts that the model or this installation cannot take, with the reason."""
    processor = getattr(tokenizer_manager, "mm_processor", None)
    if processor is None:
        return dict.fromkeys(_TOKENS, "this model accepts text only")
    tokens = getattr(processor, "mm_tokens", None)
    refusals = {
        kind: f"this model takes no {name} input"
        for kind, name in _TOKENS.items()
        if tokens is not None and not _has_token(tokens, name)
    }
    if "video_url" not in refusals and not has_video_decoder():
        refusals["video_url"] = NO_VIDEO_DECODER
    if "audio_url" not in refusals and not audio.has_decoder():
        refusals["audio_url"] = NO_AUDIO_DECODER
    return refusals


def _has_token(tokens: Any, name: str) -> bool:
    wanted = (f"{name}_token", f"{name}_token_id")
    return any(getattr(tokens, attribute, None) is not None for attribute in wanted)


def end_stop_iterations(tokenizer_manager: Any) -> None:
    """Let a processor that runs out of media raise ValueError.

    For a prompt with more placeholders than media, Hugging Face's processors raise StopIteration.
    SGLang runs them in a thread, and asyncio cannot hand that exception on: the request would wait
    for ever.
    """
    processor = getattr(tokenizer_manager, "mm_processor", None)
    executor: Any = getattr(processor, "mm_processor_executor", None)
    run = getattr(executor, "run", None)
    if run is None:
        return

    def guarded(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return run(partial(_without_stop_iteration, function), *arguments, **options)

    executor.run = guarded


def _without_stop_iteration(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except StopIteration:
        raise ValueError(MISMATCH) from None


def is_mismatch(error: BaseException) -> bool:
    """Whether the prompt's placeholders and the media do not belong together."""
    return str(error) in (MISMATCH, "coroutine raised StopIteration")


def most_parts(server_args: Any) -> dict[str, int]:
    """``--limit-mm-data-per-request`` by kind of part."""
    limits: Mapping[str, int] | None = getattr(server_args, "limit_mm_data_per_request", None)
    return {kind: int(limits[name]) for kind, name in _TOKENS.items() if limits and name in limits}


def failed_part(error: BaseException) -> tuple[str, int] | None:
    """``("image_url", 0)``: the part that SGLang's message names as the one it cannot decode."""
    found = _FAILED_PART.search(str(error))
    return None if found is None else (_KINDS[found[1]], int(found[2]))


def embedding_fields(items: Sequence[EmbeddedItem], rows: Any) -> dict[str, list[Any]]:
    """SGLang's media fields for encoded media; ``rows``: a tensor (rows of all items, width).

    One entry per kind, for SGLang takes the grids of a kind from its first entry alone; it
    splits the entry by medium itself, so that each keeps an identity of its own in the cache.
    """
    import torch

    parts: dict[str, list[Any]] = {}
    offset = 0
    for item in items:
        parts.setdefault(item.kind, []).append(rows[offset : offset + item.rows])
        offset += item.rows
    # A copy: the receiver's buffer is given back while SGLang still reads.
    return _entries(
        items, {kind: {"precomputed_embeddings": torch.cat(one)} for kind, one in parts.items()}
    )


def position_fields(items: Sequence[EmbeddedItem], room: int) -> dict[str, list[Any]]:
    """As `embedding_fields` without the rows, for decode: positions follow from the grids.

    SGLang would derive an identity from the rows; the room stands in, so that no two requests
    share what they do not have.
    """
    kinds = list(dict.fromkeys(item.kind for item in items))
    return _entries(
        items, {kind: {"hash": room * len(_TOKENS) + n} for n, kind in enumerate(kinds)}
    )


def _entries(
    items: Sequence[EmbeddedItem], more: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[Any]]:
    import torch

    fields: dict[str, list[Any]] = {}
    for kind, extra in more.items():
        name = _TOKENS[kind]
        grids = torch.tensor([item.grid for item in items if item.kind == kind])
        entry = {
            "format": "processor_output",
            "modality": name.upper(),
            f"{name}_grid_thw": grids,
            **extra,
        }
        fields[ENGINE_FIELDS[kind]] = [entry]
    return fields
