"""Prefill/decode separation: where decode finds the prompt's KV cache, and on which rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.logprobs import LogprobOptions
from sglang_worker.requests.validation import integer, section, sequence, string

BYPASS_ANNOTATION = "x-bypass-remote-prefill"
ROOM_LIMIT = 2**63
# Routers that cannot leave a field out write this for "no rank chosen".
RANK_UNSET = 2**32 - 1


class BootstrapAddress(msgspec.Struct, frozen=True):
    """Where a prefill worker is reached, as advertised: an IPv6 ``host`` stands in brackets."""

    host: str
    port: int


def bootstrap_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """SGLang's bootstrap fields of a decode request whose prefill runs elsewhere.

    A router that knows the prefill worker's address beforehand sends ``bootstrap_info``; one that
    waited for the prefill worker's first chunk passes that chunk on as ``prefill_result``.
    """
    info = section(request, "bootstrap_info")
    if not info:
        info = section(section(request, "prefill_result"), "disaggregated_params")
    fields = {
        "bootstrap_host": string(info, "bootstrap_host"),
        "bootstrap_port": integer(info, "bootstrap_port", low=0, high=65535),
        "bootstrap_room": integer(info, "bootstrap_room", low=0, high=ROOM_LIMIT - 1),
    }
    missing = [name for name, value in fields.items() if value is None]
    if missing:
        raise InvalidRequest("bootstrap_info", f"lacks {', '.join(missing)}")
    return fields


def refuse_bypass(request: Mapping[str, Any]) -> None:
    """SGLang cannot skip the remote prefill of a single request."""
    if BYPASS_ANNOTATION in sequence(request, "annotations"):
        raise InvalidRequest("annotations", f"{BYPASS_ANNOTATION} is not supported with SGLang")


def rank_fields(routing: Mapping[str, Any], limits: EngineLimits) -> dict[str, int]:
    """The data-parallel rank that the router chose, and the rank that ran the prefill."""
    fields: dict[str, int] = {}
    rank = known_rank(routing, "dp_rank")
    if rank is not None:
        if rank >= limits.dp_ranks:
            raise InvalidRequest(
                "dp_rank", f"must be below {limits.dp_ranks}, this worker's ranks, got {rank}"
            )
        fields["routed_dp_rank"] = rank
    prefill_rank = known_rank(routing, "prefill_dp_rank")
    if prefill_rank is not None and "disagg_prefill_dp_rank" in limits.request_fields:
        fields["disagg_prefill_dp_rank"] = prefill_rank
    return fields


def known_rank(routing: Mapping[str, Any], field: str) -> int | None:
    """The rank in ``field``, or None when the router left the choice to SGLang."""
    rank = integer(routing, field, low=0)
    return None if rank == RANK_UNSET else rank


def refuse_beyond_handover(samples: int, logprobs: LogprobOptions, limits: EngineLimits) -> None:
    """What the handover between prefill and decode cannot carry."""
    where = "when prefill and decode run on separate workers"
    if samples > 1:
        raise InvalidRequest("n", f"must be 1 {where}")
    if logprobs.prompt is not None:
        raise InvalidRequest("prompt_logprobs", f"cannot be had {where}")
    if (logprobs.top or 0) > limits.handover_logprobs:
        raise InvalidRequest("logprobs", f"must be at most {limits.handover_logprobs} {where}")
