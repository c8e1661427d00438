"""A small engine's limits, and a shorthand that maps a request against them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import GenerateCall, map_request

FIELDS = frozenset(
    {"cache_salt", "session_id", "require_reasoning", "disagg_prefill_dp_rank", "priority"}
)


@pytest.fixture
def limits() -> EngineLimits:
    return EngineLimits(
        vocab_size=1000,
        context_length=128,
        reserved_tokens=8,
        max_input_length=110,
        dp_ranks=2,
        request_fields=FIELDS,
    )


@pytest.fixture
def call(limits: EngineLimits) -> Callable[..., GenerateCall]:
    """``call(sampling={...}, stop={...}, output={...}, **request)`` with a prompt of 4 tokens."""

    def mapped(
        *,
        sampling: Any = None,
        stop: Any = None,
        output: Any = None,
        change: dict[str, Any] | None = None,
        loras: tuple[str, ...] = (),
        remote_prefill: bool = False,
        **request: Any,
    ) -> GenerateCall:
        body = {"model": "m", "token_ids": [5, 6, 7, 8], **request}
        if sampling is not None:
            body["sampling_options"] = sampling
        if stop is not None:
            body["stop_conditions"] = stop
        if output is not None:
            body["output_options"] = output
        allowed = msgspec.structs.replace(limits, **(change or {}))
        return map_request(body, allowed, loras=loras, remote_prefill=remote_prefill)

    return mapped
