"""Reasoning controls of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.validation import boolean, integer

BUDGET_LIMIT = 2**32 - 1


def reasoning_fields(request: Mapping[str, Any], limits: EngineLimits) -> dict[str, bool]:
    """Tells SGLang's grammars to wait until the reasoning has ended."""
    wanted = boolean(request, "require_reasoning")
    if not wanted or "require_reasoning" not in limits.request_fields:
        return {}
    return {"require_reasoning": True}


def thinking_budget(
    request: Mapping[str, Any], conditions: Mapping[str, Any], limits: EngineLimits
) -> dict[str, Any]:
    """SGLang's ``custom_params`` for a limited number of reasoning tokens."""
    budget = integer(conditions, "max_thinking_tokens", low=0, high=BUDGET_LIMIT)
    if budget is None:
        return {}
    if not limits.strict_thinking or not limits.reasoning_parser or not limits.has_tokenizer:
        raise InvalidRequest(
            "thinking_token_budget",
            "needs a worker with --enable-strict-thinking and --reasoning-parser",
        )
    if not boolean(request, "require_reasoning"):
        return {}
    return {"custom_params": {"thinking_budget": budget}}
