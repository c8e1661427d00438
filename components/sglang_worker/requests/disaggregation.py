"""Prefill/decode separation: where decode finds the prompt's KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.validation import integer, section, sequence, string

BYPASS_ANNOTATION = "x-bypass-remote-prefill"
ROOM_LIMIT = 2**63


def bootstrap_fields(request: Mapping[str, Any]) -> dict[str, Any]:
    """SGLang's bootstrap fields of a decode request whose prefill runs elsewhere."""
    info = section(request, "bootstrap_info")
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
    rank = integer(routing, "dp_rank", low=0)
    if rank is not None:
        if rank >= limits.dp_ranks:
            raise InvalidRequest(
                "dp_rank", f"must be below {limits.dp_ranks}, this worker's ranks, got {rank}"
            )
        fields["routed_dp_rank"] = rank
    prefill_rank = integer(routing, "prefill_dp_rank", low=0)
    if prefill_rank is not None and "disagg_prefill_dp_rank" in limits.request_fields:
        fields["disagg_prefill_dp_rank"] = prefill_rank
    return fields
