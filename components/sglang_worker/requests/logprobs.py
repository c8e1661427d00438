"""Log-probabilities: what is asked of SGLang, and its answer in Dynamo's form.

SGLang (with incremental streaming) reports, aligned with the chunk's ``output_ids``,
``output_token_logprobs`` as ``(logprob, token id, text or None)`` and ``output_top_logprobs`` as
one list of the same per position. Dynamo wants ``log_probs``: one float per token, and
``top_logprobs``: per token a list of ``{rank, token_id, token, logprob}``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.validation import boolean, integer

# What SGLang's and OpenAI's servers write for "impossible"; JSON has no infinity.
IMPOSSIBLE = -9999.0


class LogprobOptions(msgspec.Struct, frozen=True):
    """``top``: alternatives per token, 0 for the chosen token alone, None for no logprobs."""

    top: int | None = None
    prompt: int | None = None
    tokens_as_ids: bool = False


def logprob_options(output_options: Mapping[str, Any], limits: EngineLimits) -> LogprobOptions:
    return LogprobOptions(
        top=integer(output_options, "logprobs", low=0, high=limits.vocab_size),
        prompt=integer(output_options, "prompt_logprobs", low=0, high=limits.vocab_size),
        tokens_as_ids=bool(boolean(output_options, "return_tokens_as_token_ids")),
    )


def logprob_fields(options: LogprobOptions) -> dict[str, Any]:
    """SGLang's request fields. Its one ``top_logprobs_num`` serves prompt and answer alike."""
    if options.top is None and options.prompt is None:
        return {}
    fields: dict[str, Any] = {
        "return_logprob": True,
        "top_logprobs_num": max(options.top or 0, options.prompt or 0),
    }
    if options.prompt is not None:
        # 0 covers the prompt from its first token; SGLang's default covers the answer only.
        fields["logprob_start_len"] = 0
    return fields


def chosen(meta: Mapping[str, Any], tokens: int) -> list[float] | None:
    """One logprob per token of the chunk; None rather than a misaligned list."""
    entries = meta.get("output_token_logprobs")
    if not entries or len(entries) < tokens:
        return None
    return [finite(entry[0]) for entry in entries[:tokens]]


def alternatives(
    meta: Mapping[str, Any], tokens: int, options: LogprobOptions
) -> list[list[dict[str, Any]]] | None:
    """The ``options.top`` likeliest tokens per position, best first."""
    positions = meta.get("output_top_logprobs")
    if not options.top or not positions or len(positions) < tokens:
        return None
    return [_position(entries, options) for entries in positions[:tokens]]


def _position(entries: Sequence[Any] | None, options: LogprobOptions) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "token_id": token_id,
            "token": f"token_id:{token_id}" if options.tokens_as_ids else text,
            "logprob": finite(logprob),
        }
        for rank, (logprob, token_id, text) in enumerate((entries or ())[: options.top], start=1)
    ]


def prompt_positions(
    meta: Mapping[str, Any], options: LogprobOptions
) -> list[dict[str, dict[str, Any]] | None] | None:
    """Per prompt token a map from token id to its logprob. The first token has none."""
    if options.prompt is None:
        return None
    entries = meta.get("input_token_logprobs")
    if not entries:
        return None
    tops = meta.get("input_top_logprobs") or ()
    positions: list[dict[str, dict[str, Any]] | None] = []
    for index, (logprob, token_id, text) in enumerate(entries):
        if logprob is None:
            positions.append(None)
            continue
        position = {str(token_id): _prompt_entry(logprob, text)}
        others = tops[index] if index < len(tops) else None
        for other_logprob, other_id, other_text in (others or ())[: options.prompt]:
            position.setdefault(str(other_id), _prompt_entry(other_logprob, other_text))
        positions.append(position)
    return positions


def _prompt_entry(logprob: float, text: str | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"logprob": finite(logprob)}
    if text is not None:
        entry["decoded_token"] = text
    return entry


def finite(logprob: float | None) -> float:
    """``-inf``, NaN and a missing value become `IMPOSSIBLE`."""
    if logprob is None or not logprob > IMPOSSIBLE:
        return IMPOSSIBLE
    return float(logprob)
