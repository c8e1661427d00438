"""When generation ends: stop token ids, stop strings, end of sequence, and length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.validation import (
    boolean,
    integer,
    require_in_vocabulary,
    sequence,
    token_ids,
)

MAX_STOP_STRINGS = 32
# End-of-sequence tokens that SGLang holds back besides the request's own stop tokens.
END_TOKENS = 16


class Stopping(msgspec.Struct, frozen=True):
    """``user_stop_ids``: those that the client named, the only ones reported as stop reason."""

    fields: Mapping[str, Any]
    max_tokens: int | None
    user_stop_ids: frozenset[int]


def stopping(conditions: Mapping[str, Any], prompt_tokens: int, limits: EngineLimits) -> Stopping:
    max_tokens = _max_tokens(conditions, prompt_tokens, limits)
    # SGLang takes an absent max_new_tokens as 128 and None as "until the end or the context".
    fields: dict[str, Any] = {"max_new_tokens": max_tokens}
    named = [
        *token_ids(conditions, "stop_token_ids"),
        *token_ids(conditions, "stop_token_ids_visible"),
    ]
    require_in_vocabulary(named, "stop_token_ids", limits.vocab_size)
    # The frontend adds the model's end-of-sequence ids; the tokenizer may know more of them than
    # the model has embeddings for, which is not the client's fault.
    hidden = [
        token
        for token in token_ids(conditions, "stop_token_ids_hidden")
        if 0 <= token < limits.vocab_size
    ]
    if named or hidden:
        fields["stop_token_ids"] = sorted({*named, *hidden})
    if boolean(conditions, "ignore_eos"):
        fields["ignore_eos"] = True
    fields.update(_stop_strings(conditions, limits))
    stop_ids = len(fields.get("stop_token_ids", ()))
    fields.update(_min_tokens(conditions, max_tokens, prompt_tokens, limits, stop_ids))
    return Stopping(fields, max_tokens, frozenset(named))


def _max_tokens(
    conditions: Mapping[str, Any], prompt_tokens: int, limits: EngineLimits
) -> int | None:
    max_tokens = integer(conditions, "max_tokens", low=0)
    if max_tokens is None or limits.truncates or not limits.rejects_long_totals:
        return max_tokens
    room = limits.usable_context - prompt_tokens
    if max_tokens > room:
        raise InvalidRequest(
            "max_tokens",
            f"{max_tokens} tokens after a prompt of {prompt_tokens} do not fit the context of "
            f"{limits.usable_context} tokens; at most {max(room, 0)} are possible",
        )
    return max_tokens


def _min_tokens(
    conditions: Mapping[str, Any],
    max_tokens: int | None,
    prompt_tokens: int,
    limits: EngineLimits,
    stop_ids: int,
) -> dict[str, Any]:
    min_tokens = integer(conditions, "min_tokens", low=0)
    if not min_tokens:
        return {}
    if max_tokens is not None and min_tokens > max_tokens:
        raise InvalidRequest(
            "min_tokens", f"{min_tokens} is more than max_tokens, which is {max_tokens}"
        )
    if prompt_tokens + min_tokens > limits.usable_context:
        raise InvalidRequest(
            "min_tokens",
            f"{min_tokens} tokens after a prompt of {prompt_tokens} do not fit the context of "
            f"{limits.usable_context} tokens",
        )
    if stop_ids >= limits.vocab_size - END_TOKENS:
        raise InvalidRequest("min_tokens", "cannot hold back a whole vocabulary of stop tokens")
    if not limits.has_tokenizer or not limits.has_eos:
        raise InvalidRequest(
            "min_tokens", "needs a tokenizer with an end-of-sequence token in the engine"
        )
    return {"min_new_tokens": min_tokens}


def _stop_strings(conditions: Mapping[str, Any], limits: EngineLimits) -> dict[str, Any]:
    """The frontend cuts the text at a stop string; telling SGLang too ends the decoding at once.

    Without a tokenizer in the engine the frontend alone finds them, and then disconnects.
    """
    value = conditions.get("stop")
    if isinstance(value, str):
        value = [value]
    strings = list(sequence({"stop": value}, "stop"))
    for position, text in enumerate(strings):
        if not isinstance(text, str) or not text:
            raise InvalidRequest(f"stop[{position}]", "must be a non-empty string")
    if len(strings) > MAX_STOP_STRINGS:
        raise InvalidRequest(
            "stop", f"at most {MAX_STOP_STRINGS} stop strings are accepted, got {len(strings)}"
        )
    if not strings or not limits.has_tokenizer:
        return {}
    return {"stop": strings}
