"""The requests by which a worker's health is probed, and when their answers count.

Rules for every worker type: the payload carries Dynamo's marker (`workers.probes`), takes the
request's own path through the handler, asks for the least that exercises all of it, and gives way
to the operator's (``DYN_HEALTH_CHECK_PAYLOAD``), which keeps the marker: an unmarked probe would
be refused by a closed gate and turn a draining worker unhealthy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from sglang_worker.errors import ConfigError
from sglang_worker.observability.health.probe import ForRank, NormalEnd
from sglang_worker.requests.errors import InvalidRequest

FALLBACK_TOKEN = 1
# Finish reasons that end a request as asked; any other is an error's, an abort's or a mistake.
NORMAL_FINISH = frozenset({"stop", "length", "eos"})
SETTING = "DYN_HEALTH_CHECK_PAYLOAD"


def normal_end(chunks: Sequence[Any]) -> str | None:
    """None if a handler's whole answer to a probe is a normal one, else what is wrong with it.

    Token workers must finish with a normal reason. An answer of another kind (an embedding, an
    image) must be there and carry no error.
    """
    if not chunks:
        return "it yielded nothing"
    for chunk in chunks:
        if not isinstance(chunk, Mapping):
            continue
        error = chunk.get("error") or (chunk.get("status") == "error" and chunk.get("message"))
        if error:
            return f"it answered with an error: {_short(error)}"
        reason = chunk.get("finish_reason")
        if reason is not None and _word(reason) not in NORMAL_FINISH:
            return f"it finished with {_short(reason)!r}"
    last = chunks[-1]
    if isinstance(last, Mapping) and "token_ids" in last and last.get("finish_reason") is None:
        return "it ended without a finish reason"
    return None


def _word(reason: Any) -> str:
    return str(reason.get("type") if isinstance(reason, Mapping) else reason).lower()


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else text[:200] + "…"


def for_rank(payload: Mapping[str, Any], rank: int) -> Mapping[str, Any]:
    """The payload addressed to one data-parallel rank, as the router would address it; inside
    the wrapper of a prefill request too, whose room decides as well."""
    if isinstance(inner := payload.get("request"), Mapping):
        return {**payload, "request": for_rank(inner, rank)}
    addressed = {**payload, "routing": {**(payload.get("routing") or {}), "dp_rank": rank}}
    if isinstance(bootstrap := payload.get("bootstrap_info"), Mapping):
        addressed["bootstrap_info"] = {**bootstrap, "bootstrap_room": rank}
    return addressed


class HealthRules(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between worker types besides the payload.

    ``least_answer_s``, ``least_interval_s``: for probes that cost more than a token, such as an
    image; the operator's bounds apply where they are longer.
    """

    normal_end: NormalEnd = normal_end
    for_rank: ForRank = for_rank
    least_answer_s: float = 0.0
    least_interval_s: float = 0.0


def marked(payload: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The payload with the marker by which handlers recognise a probe."""
    return {**payload, key: True}


def generate_payload(
    key: str, tokenizer: Any, vocab_size: int, override: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The health payload of decode and aggregated workers, or the operator's ``override``."""
    if override is not None:
        return marked(override, key)
    return marked(
        {
            "token_ids": [probe_token(tokenizer, vocab_size)],
            "stop_conditions": {"max_tokens": 1, "ignore_eos": True},
            "sampling_options": {"temperature": 0.0},
            "output_options": {},
            "eos_token_ids": [],
            "annotations": [],
        },
        key,
    )


def probe_token(tokenizer: Any, vocab_size: int) -> int:
    """The model's beginning-of-sequence token, or any token that surely exists."""
    token = getattr(tokenizer, "bos_token_id", None)
    if isinstance(token, int) and 0 <= token < vocab_size:
        return token
    return min(FALLBACK_TOKEN, vocab_size - 1)


def check_override(
    override: Mapping[str, Any] | None, accept: Callable[[Mapping[str, Any]], object]
) -> None:
    """Raises ConfigError unless ``accept`` (the type's own mapping of requests) takes it: a
    payload that is refused would leave a sound worker unhealthy for ever."""
    if override is None:
        return
    try:
        accept(override)
    except (InvalidRequest, ValueError) as error:
        raise ConfigError(f"{SETTING} (--health-check-payload): {error}") from None
