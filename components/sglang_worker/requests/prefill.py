"""What a prefill worker does with a request: the whole prompt and the first token, for one room."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from sglang_worker.requests.disaggregation import ROOM_LIMIT, BootstrapAddress, known_rank
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import GenerateCall, map_request
from sglang_worker.requests.validation import section

# SGLang's names in the wrapped form of a prefill request -> (section, field) of Dynamo's request.
WRAPPED_SAMPLING: Mapping[str, tuple[str, str]] = {
    **{
        name: ("sampling_options", name)
        for name in (
            *("temperature", "top_p", "top_k", "min_p", "n"),
            *("frequency_penalty", "presence_penalty", "repetition_penalty"),
        )
    },
    "sampling_seed": ("sampling_options", "seed"),
    "max_new_tokens": ("stop_conditions", "max_tokens"),
    "min_new_tokens": ("stop_conditions", "min_tokens"),
    **{name: ("stop_conditions", name) for name in ("stop", "stop_token_ids", "ignore_eos")},
}


def map_prefill(
    request: Mapping[str, Any],
    limits: EngineLimits,
    address: BootstrapAddress,
    *,
    follows_room: bool = True,
    loras: Collection[str] = (),
) -> GenerateCall:
    """Map a request for a prefill worker: the whole prompt and the first token, for one room.

    The sampling options count, for the first token is sampled here. ``follows_room``: without a
    rank of the router's, room modulo ranks is the data-parallel rank, and decode knows.
    """
    if not isinstance(request, Mapping):
        raise InvalidRequest("request", "must be an object")
    whole = with_room(unwrapped(request), limits, address)
    call = map_request(whole, limits, loras=loras, remote_prefill=True)
    sampling = {**call.fields["sampling_params"], "max_new_tokens": 1}
    if "min_new_tokens" in sampling:
        sampling["min_new_tokens"] = 1
    fields = {**call.fields, "sampling_params": sampling}
    # Which rank computes a prompt is for this worker to say.
    fields.pop("disagg_prefill_dp_rank", None)
    if limits.dp_ranks > 1:
        fields.update(own_rank(fields, limits, follows_room))
    return msgspec.structs.replace(call, fields=fields, max_tokens=1)


def own_rank(fields: Mapping[str, Any], limits: EngineLimits, follows_room: bool) -> dict[str, int]:
    """The rank that computes the prompt: as a choice, and as one that decode knows.

    Without the second SGLang doubts the first. With replicas that share nothing (``--dp-size``
    without attention parallelism) 0.5.23 doubts even its own choice, because it compares the room
    with the rank inside the replica.
    """
    rank = fields.get("routed_dp_rank")
    if rank is None and follows_room:
        rank = fields["bootstrap_room"] % limits.dp_ranks
    if rank is None:
        return {}
    known = "disagg_prefill_dp_rank" in limits.request_fields
    return {"routed_dp_rank": rank, **({"disagg_prefill_dp_rank": rank} if known else {})}


def unwrapped(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """The preprocessed request inside ``{"request": …, "sampling_params": …}``.

    The sampling parameters carry SGLang's names; they and an outer ``routing`` take precedence over
    the request's own.
    """
    if request.get("request") is None:
        return request
    inner = dict(section(request, "request"))
    inner["routing"] = {**section(inner, "routing"), **section(request, "routing")}
    for name, value in section(request, "sampling_params").items():
        place = WRAPPED_SAMPLING.get(name)
        if place is None:
            raise InvalidRequest(
                f"sampling_params.{name}",
                f"is not accepted in a wrapped request; accepted: {', '.join(WRAPPED_SAMPLING)}",
            )
        inner[place[0]] = {**section(inner, place[0]), place[1]: value}
    return inner


def with_room(
    request: Mapping[str, Any], limits: EngineLimits, address: BootstrapAddress
) -> Mapping[str, Any]:
    """Complete ``bootstrap_info``: the router's room, or a fresh one at our own address."""
    info = section(request, "bootstrap_info")
    known = {name: value for name, value in info.items() if value is not None}
    complete = {
        "bootstrap_host": address.host,
        "bootstrap_port": address.port,
        "bootstrap_room": new_room(known_rank(section(request, "routing"), "dp_rank"), limits),
        **known,
    }
    return {**request, "bootstrap_info": complete}


def new_room(rank: int | None, limits: EngineLimits) -> int:
    """A random room. Decode workers may derive the prefill rank from it: room modulo ranks."""
    room = secrets.randbelow(ROOM_LIMIT - limits.dp_ranks)
    if rank is None:
        return room
    return room - room % limits.dp_ranks + rank % limits.dp_ranks


def handover_chunk(call: GenerateCall) -> dict[str, Any]:
    """The first chunk of a prefill: where decode fetches the KV cache."""
    names = ("bootstrap_host", "bootstrap_port", "bootstrap_room")
    return {
        "token_ids": [],
        "disaggregated_params": {name: call.fields[name] for name in names},
    }
