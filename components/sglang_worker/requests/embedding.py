"""An OpenAI embeddings request -> what SGLang embeds, and its vectors -> the answer. Pure."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.requests.chunks import abort_error
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.validation import (
    integer,
    require_in_vocabulary,
    section,
    string,
    token_ids,
)

INPUT = "input"
FORMATS = ("float", "base64")
PRIORITY_LIMIT = 2**31
ACCEPTED = "must be text, a list of texts, a list of token ids or a list of lists of token ids"


class EmbeddingLimits(msgspec.Struct, frozen=True, kw_only=True):
    """``engine`` bounds prompts. ``matryoshka``: the model's vectors may be shortened, to any of
    ``matryoshka_dimensions`` (empty: to any length up to ``dimensions``)."""

    engine: EngineLimits
    dimensions: int
    matryoshka: bool = False
    matryoshka_dimensions: tuple[int, ...] = ()


class EmbeddingCall(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of ``texts`` and ``prompts`` (token ids) is set, in the client's order.

    ``listed``: the client sent a list, so that a fault names its position.
    """

    model: str | None
    texts: tuple[str, ...] | None = None
    prompts: tuple[list[int], ...] | None = None
    listed: bool = True
    dimensions: int | None = None
    priority: int | None = None

    def field(self, position: int) -> str:
        return f"{INPUT}[{position}]" if self.listed else INPUT


def map_embedding(request: Any, limits: EmbeddingLimits) -> EmbeddingCall:
    """Raises InvalidRequest; token prompts are checked against ``limits``, texts are not yet."""
    if not isinstance(request, Mapping):
        raise InvalidRequest("request", "must be an object")
    _encoding_format(request)
    call = msgspec.structs.replace(
        _inputs(request.get(INPUT)),
        model=string(request, "model"),
        dimensions=_dimensions(request, limits),
        priority=integer(
            section(request, "routing"), "priority", low=-PRIORITY_LIMIT, high=PRIORITY_LIMIT - 1
        ),
    )
    if call.texts is not None and not limits.engine.has_tokenizer:
        raise InvalidRequest(INPUT, "must be token ids: the engine runs without a tokenizer")
    if call.prompts is not None:
        check_prompts(call, call.prompts, limits.engine)
    return call


def _inputs(value: Any) -> EmbeddingCall:
    if isinstance(value, str):
        return EmbeddingCall(model=None, texts=(_text(value, INPUT),), listed=False)
    if not isinstance(value, list | tuple):
        raise InvalidRequest(INPUT, ACCEPTED)
    if not value:
        raise InvalidRequest(INPUT, "is empty")
    first = value[0]
    if isinstance(first, str):
        return EmbeddingCall(
            model=None,
            texts=tuple(_text(item, f"{INPUT}[{index}]") for index, item in enumerate(value)),
        )
    if isinstance(first, list | tuple):
        return EmbeddingCall(
            model=None,
            prompts=tuple(_prompt(item, f"{INPUT}[{index}]") for index, item in enumerate(value)),
        )
    if isinstance(first, int) and not isinstance(first, bool):
        return EmbeddingCall(model=None, prompts=(_prompt(value, INPUT),), listed=False)
    raise InvalidRequest(f"{INPUT}[0]", ACCEPTED)


def _text(value: Any, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidRequest(field, "must be text as the items before it are")
    if not value.strip():
        raise InvalidRequest(field, "is empty or white space")
    return value


def _prompt(value: Any, field: str) -> list[int]:
    if not isinstance(value, list | tuple):
        raise InvalidRequest(field, "must be a list of token ids as the items before it are")
    ids = token_ids({field: value}, field)
    if not ids:
        raise InvalidRequest(field, "is empty")
    # SGLang may cut the list that it is given; the request stays the caller's.
    return list(ids)


def _encoding_format(request: Mapping[str, Any]) -> None:
    """Only checked: vectors leave the worker in base64 and the frontend writes what was asked."""
    name = string(request, "encoding_format")
    if name is not None and name not in FORMATS:
        raise InvalidRequest("encoding_format", f"must be {' or '.join(FORMATS)}, got {name!r}")


def _dimensions(request: Mapping[str, Any], limits: EmbeddingLimits) -> int | None:
    wanted = integer(request, "dimensions", low=1)
    if wanted is None:
        return None
    if not limits.matryoshka:
        raise InvalidRequest(
            "dimensions",
            f"is not supported by this model, whose vectors always have {limits.dimensions} values "
            "(no Matryoshka representation)",
        )
    allowed = limits.matryoshka_dimensions
    if allowed and wanted not in allowed:
        raise InvalidRequest(
            "dimensions", f"must be one of {', '.join(map(str, allowed))}, got {wanted}"
        )
    if wanted > limits.dimensions:
        raise InvalidRequest("dimensions", f"must be at most {limits.dimensions}, got {wanted}")
    return wanted


def check_prompts(
    call: EmbeddingCall, prompts: Sequence[Sequence[int]], limits: EngineLimits
) -> None:
    """Vocabulary and length of every prompt of the call; also of texts, once they are tokens."""
    for position, prompt in enumerate(prompts):
        field = call.field(position)
        if not prompt:
            raise InvalidRequest(field, "has no token")
        require_in_vocabulary(prompt, field, limits.vocab_size)
        if len(prompt) > limits.longest_prompt and not limits.truncates:
            raise InvalidRequest(
                field,
                f"has {len(prompt)} tokens, and this worker accepts at most "
                f"{limits.longest_prompt} (context of {limits.usable_context} tokens)",
            )


def answer(call: EmbeddingCall, outputs: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """SGLang's outputs, one per input and in its order, as OpenAI's list of embeddings.

    ``name``: the model's, for requests that carry none. Raises RefusedByEngine or EndedByEngine
    when SGLang gave one of the inputs up.
    """
    tokens = 0
    data = []
    for index, output in enumerate(outputs):
        meta = output["meta_info"]
        finish = meta.get("finish_reason")
        if isinstance(finish, Mapping) and finish.get("type") == "abort":
            raise abort_error(finish)
        tokens += meta.get("prompt_tokens") or 0
        data.append(
            {"object": "embedding", "index": index, "embedding": packed(output["embedding"])}
        )
    return {
        "object": "list",
        "data": data,
        "model": call.model or name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def packed(vector: Sequence[float]) -> str:
    """Base64 of the little-endian float32 values, OpenAI's ``encoding_format: base64``."""
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values).decode("ascii")
