"""Sampling options. Ranges are SGLang's (``SamplingParams.verify``), checked here so that the
message carries the client's field name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.validation import boolean, integer, number

MAX_SAMPLES = 128
SEED_LIMIT = 2**63


class _Range(msgspec.Struct, frozen=True):
    accepts: Callable[[float], bool]
    text: str


_RANGES: Mapping[str, _Range] = {
    "temperature": _Range(lambda value: value >= 0, "must not be negative"),
    "top_p": _Range(lambda value: 0 < value <= 1, "must be above 0 and at most 1"),
    "min_p": _Range(lambda value: 0 <= value <= 1, "must be between 0 and 1"),
    "frequency_penalty": _Range(lambda value: -2 <= value <= 2, "must be between -2 and 2"),
    "presence_penalty": _Range(lambda value: -2 <= value <= 2, "must be between -2 and 2"),
    # Logits are divided by it: a tiny one makes them infinite, and SGLang's sampling fails.
    "repetition_penalty": _Range(
        lambda value: 0.01 <= value <= 2, "must be at least 0.01 and at most 2"
    ),
}


def sampling_fields(
    options: Mapping[str, Any], defaults: Mapping[str, float] = MappingProxyType({})
) -> dict[str, Any]:
    """SGLang sampling parameters from ``sampling_options``; what the client left out is the
    model's default, or absent."""
    fields: dict[str, Any] = dict(defaults)
    for name, allowed in _RANGES.items():
        value = number(options, name)
        if value is None:
            continue
        if not allowed.accepts(value):
            raise InvalidRequest(name, f"{allowed.text}, got {value}")
        fields[name] = value
    top_k = integer(options, "top_k")
    if top_k is not None:
        fields["top_k"] = _top_k(top_k)
    seed = integer(options, "seed", low=-SEED_LIMIT, high=SEED_LIMIT - 1)
    if seed is not None:
        fields["sampling_seed"] = seed
    _refuse_beam_search(options)
    samples = sample_count(options)
    if samples > 1:
        fields["n"] = samples
    return fields


def sample_count(options: Mapping[str, Any]) -> int:
    """How many answers the client wants. Choosing the best of more is not offered by SGLang."""
    samples = integer(options, "n", low=1, high=MAX_SAMPLES) or 1
    best_of = integer(options, "best_of", low=1)
    if best_of is not None and best_of > samples:
        raise InvalidRequest(
            "best_of", f"must not exceed n ({samples}): SGLang does not rank extra samples"
        )
    return samples


def _top_k(value: int) -> int:
    """0 and -1 both mean the whole vocabulary, as OpenAI clients and SGLang write it."""
    if value in (0, -1):
        return -1
    if value < 1:
        raise InvalidRequest("top_k", f"must be -1, 0 or at least 1, got {value}")
    # SGLang keeps it as a 32-bit number; beyond the vocabulary it means the whole vocabulary.
    return min(value, 1 << 30)


def _refuse_beam_search(options: Mapping[str, Any]) -> None:
    if boolean(options, "use_beam_search"):
        raise InvalidRequest("use_beam_search", "beam search is not served by this worker")
