"""Dynamo's preprocessed request -> the call that SGLang gets. Pure; raises `InvalidRequest`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from sglang_worker.requests.disaggregation import (
    bootstrap_fields,
    rank_fields,
    refuse_beyond_handover,
    refuse_bypass,
)
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.guided import guided_fields
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.logprobs import LogprobOptions, logprob_fields, logprob_options
from sglang_worker.requests.multimodal import multimodal_fields
from sglang_worker.requests.sampling import sampling_fields
from sglang_worker.requests.stopping import stopping
from sglang_worker.requests.thinking import reasoning_fields, thinking_budget
from sglang_worker.requests.validation import (
    integer,
    section,
    string,
    token_ids,
    vocabulary_ids,
)

PRIORITY_LIMIT = 2**31


class GenerateCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request, ready for SGLang.

    ``fields`` are the keyword arguments of SGLang's generate request (without id and stream);
    the rest is what turning its output into Dynamo's chunks needs.
    """

    fields: Mapping[str, Any]
    prompt_tokens: int
    samples: int = 1
    max_tokens: int | None = None
    user_stop_ids: frozenset[int] = frozenset()
    logprobs: LogprobOptions = LogprobOptions()

    @property
    def is_already_complete(self) -> bool:
        """A migrated request can arrive with every token sent and none left to make."""
        return self.max_tokens == 0


def map_request(
    request: Mapping[str, Any],
    limits: EngineLimits,
    *,
    loras: Collection[str] = (),
    remote_prefill: bool = False,
) -> GenerateCall:
    """Map a request for an aggregated worker, or for decode when ``remote_prefill``."""
    if not isinstance(request, Mapping):
        raise InvalidRequest("request", "must be an object")
    refuse_bypass(request)
    media = multimodal_fields(request, limits)
    prompt = _prompt(request, limits, has_media=bool(media))
    sampling_options = section(request, "sampling_options")
    conditions = section(request, "stop_conditions")
    routing = section(request, "routing")
    stops = stopping(conditions, len(prompt), limits)
    logprobs = logprob_options(section(request, "output_options"), limits)
    constraint = guided_fields(sampling_options, limits)
    if constraint and "min_new_tokens" in stops.fields:
        # SGLang masks the end of sequence; a finished grammar masks the rest, no token is left.
        raise InvalidRequest("min_tokens", "cannot be combined with guided decoding")
    sampling: dict[str, Any] = {
        **sampling_fields(sampling_options, limits.default_sampling),
        **stops.fields,
        **constraint,
        **thinking_budget(request, conditions, limits),
    }
    fields: dict[str, Any] = {
        "input_ids": prompt,
        "sampling_params": sampling,
        **media,
        **logprob_fields(logprobs),
        **rank_fields(routing, limits),
        **_priority(routing),
        **_cache_salt(request, routing, limits),
        **_lora(request, routing, loras),
        **_session(request, limits),
        **reasoning_fields(request, limits),
    }
    if remote_prefill:
        refuse_beyond_handover(sampling.get("n", 1), logprobs, limits)
        fields.update(bootstrap_fields(request))
    return GenerateCall(
        fields=fields,
        prompt_tokens=len(prompt),
        samples=sampling.get("n", 1),
        max_tokens=stops.max_tokens,
        user_stop_ids=stops.user_stop_ids,
        logprobs=logprobs,
    )


def _prompt(request: Mapping[str, Any], limits: EngineLimits, *, has_media: bool) -> list[int]:
    # Media placeholders may lie beyond the embedding table; SGLang replaces them.
    prompt = (
        token_ids(request, "token_ids")
        if has_media
        else vocabulary_ids(request, "token_ids", limits.vocab_size)
    )
    if not prompt:
        raise InvalidRequest("token_ids", "the prompt is empty")
    if limits.truncates:
        # SGLang cuts the list it is given in place; the request stays the caller's.
        return list(prompt)
    if len(prompt) > limits.longest_prompt:
        raise InvalidRequest(
            "prompt",
            f"has {len(prompt)} tokens, and this worker accepts at most {limits.longest_prompt} "
            f"(context of {limits.usable_context} tokens)",
        )
    return prompt


def _priority(routing: Mapping[str, Any]) -> dict[str, int]:
    priority = integer(routing, "priority", low=-PRIORITY_LIMIT, high=PRIORITY_LIMIT - 1)
    return {} if priority is None else {"priority": priority}


def _cache_salt(
    request: Mapping[str, Any], routing: Mapping[str, Any], limits: EngineLimits
) -> dict[str, str]:
    """Prefixes are shared only among requests of one salt. The router's word comes first."""
    nvext = section(section(request, "extra_args"), "nvext")
    for source in (routing, nvext, section(request, "nvext"), request):
        salt = string(source, "cache_salt")
        if salt:
            if "cache_salt" not in limits.request_fields:
                raise InvalidRequest("cache_salt", "is not supported by the installed SGLang")
            return {"cache_salt": salt}
    return {}


def _lora(
    request: Mapping[str, Any], routing: Mapping[str, Any], loras: Collection[str]
) -> dict[str, str]:
    """An adapter is asked for by its name as the model, or by the router."""
    name = string(routing, "lora_name")
    if name:
        if name not in loras:
            known = ", ".join(sorted(loras)) or "none"
            raise InvalidRequest("model", f"LoRA {name!r} is not loaded here; loaded: {known}")
        return {"lora_path": name}
    model = string(request, "model")
    if model is not None and model in loras:
        return {"lora_path": model}
    return {}


def _session(request: Mapping[str, Any], limits: EngineLimits) -> dict[str, str]:
    """Agent sessions: SGLang keeps the cache of one session together."""
    context = section(request, "agent_context")
    return {
        name: value.strip()
        for name in ("session_id", "parent_session_id")
        if name in limits.request_fields
        and isinstance(value := context.get(name), str)
        and value.strip()
    }
