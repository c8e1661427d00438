"""The request by which the runtime probes a token worker: one token through the whole path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FALLBACK_TOKEN = 1


def generate_payload(
    key: str, tokenizer: Any, vocab_size: int, override: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The health payload of decode and aggregated workers, marked with ``key``.

    ``override`` is the operator's own payload; the marker is added to it as well, because an
    unmarked probe would be refused by a closed gate and turn a draining worker unhealthy.
    """
    if override is not None:
        return {**override, key: True}
    return {
        "token_ids": [probe_token(tokenizer, vocab_size)],
        "stop_conditions": {"max_tokens": 1, "ignore_eos": True},
        "sampling_options": {"temperature": 0.0},
        "output_options": {},
        "eos_token_ids": [],
        "annotations": [],
        key: True,
    }


def probe_token(tokenizer: Any, vocab_size: int) -> int:
    """The model's beginning-of-sequence token, or any token that surely exists."""
    token = getattr(tokenizer, "bos_token_id", None)
    if isinstance(token, int) and 0 <= token < vocab_size:
        return token
    return min(FALLBACK_TOKEN, vocab_size - 1)
