"""SGLang's output -> Dynamo's disjoint token chunks.

With ``incremental_streaming_output`` SGLang's ``output_ids`` and logprobs already hold what is new
since the last output, so nothing is cut, copied or counted here. This is the hot path: it runs
once per token and stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.requests import logprobs
from sglang_worker.requests.errors import EndedByEngine, RefusedByEngine
from sglang_worker.requests.mapping import GenerateCall

MAX_MESSAGE_CHARS = 4096
SERVER_ERROR = 500
BAD_REQUEST = 400
GRAMMAR_FAILURE = "Grammar accept_token failed"


class ChunkWriter:
    """Writes the chunks of one request."""

    __slots__ = ("_call", "_plain", "_started", "_wants_logprobs")

    def __init__(self, call: GenerateCall) -> None:
        self._call = call
        self._wants_logprobs = call.logprobs.top is not None
        # One answer, no logprobs: every chunk but the first and the last is its tokens alone.
        self._plain = call.samples == 1 and not self._wants_logprobs
        self._started: set[int] = set()

    def write(self, output: Mapping[str, Any]) -> dict[str, Any] | None:
        """The chunk for one SGLang output; None when it says nothing new.

        Raises `RefusedByEngine` or `EndedByEngine` when SGLang gave the request up.
        """
        meta = output["meta_info"]
        tokens = output["output_ids"]
        finish = meta["finish_reason"]
        if finish is None:
            if not tokens:
                return None
            if self._plain and self._started:
                return {"token_ids": tokens}
        return self._write_full(output, meta, tokens, finish)

    def _write_full(
        self,
        output: Mapping[str, Any],
        meta: Mapping[str, Any],
        tokens: list[int],
        finish: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        chunk: dict[str, Any] = {"token_ids": tokens}
        index = output.get("index") or 0
        if self._call.samples > 1:
            chunk["index"] = index
        if finish is not None:
            chunk.update(finish_fields(finish, self._call.user_stop_ids))
        if self._wants_logprobs and tokens:
            self._add_logprobs(chunk, meta, len(tokens))
        if finish is not None or index not in self._started:
            self._started.add(index)
            usage = usage_of(meta)
            if usage is not None:
                chunk["completion_usage"] = usage
        if finish is not None:
            engine_data = self._engine_data(meta)
            if engine_data:
                chunk["engine_data"] = engine_data
        return chunk

    def _add_logprobs(self, chunk: dict[str, Any], meta: Mapping[str, Any], tokens: int) -> None:
        values = logprobs.chosen(meta, tokens)
        if values is not None:
            chunk["log_probs"] = values
        tops = logprobs.alternatives(meta, tokens, self._call.logprobs)
        if tops is not None:
            chunk["top_logprobs"] = tops

    def _engine_data(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """What rides to the frontend opaquely: prompt logprobs, and cache reuse for the router."""
        data: dict[str, Any] = {}
        prompt = logprobs.prompt_positions(meta, self._call.logprobs)
        if prompt is not None:
            data["prompt_logprobs"] = prompt
        routed_experts = meta.get("routed_experts")
        if routed_experts is not None:
            data["routed_experts"] = routed_experts
        # With n > 1 SGLang warms the prefix up first, so no sample measures earlier reuse.
        prompt_tokens = meta.get("prompt_tokens")
        if prompt_tokens is not None and self._call.samples == 1:
            data["kv_cache_hit"] = {
                "prompt_tokens": prompt_tokens,
                "reused_tokens": meta.get("cached_tokens") or 0,
            }
        return data


def finish_fields(finish: Mapping[str, Any], user_stop_ids: frozenset[int]) -> dict[str, Any]:
    """``finish_reason`` and, when the client's own stop matched, ``stop_reason``."""
    kind = finish["type"]
    if kind == "abort":
        raise abort_error(finish)
    fields: dict[str, Any] = {"finish_reason": kind}
    matched = finish.get("matched")
    if isinstance(matched, str) or (isinstance(matched, int) and matched in user_stop_ids):
        fields["stop_reason"] = matched
    return fields


def abort_error(finish: Mapping[str, Any]) -> RefusedByEngine | EndedByEngine:
    """An abort with a status is SGLang refusing the request; one without is an interruption."""
    status = finish.get("status_code")
    message = finish.get("message")
    text = message[:MAX_MESSAGE_CHARS] if isinstance(message, str) and message else ""
    if status is None and finish.get("err_type") is None:
        return EndedByEngine(text or "the engine ended the request")
    if text.startswith(GRAMMAR_FAILURE):
        # SGLang calls it its own error, but the client's grammar left no way to go on.
        return RefusedByEngine(BAD_REQUEST, text)
    if isinstance(status, bool) or not isinstance(status, int) or not 400 <= status < 600:
        status = SERVER_ERROR
    return RefusedByEngine(int(status), text or "the engine refused the request")


def usage_of(meta: Mapping[str, Any]) -> dict[str, Any] | None:
    """Token counts of one answer so far, in OpenAI's form."""
    prompt = meta.get("prompt_tokens")
    completion = meta.get("completion_tokens")
    if prompt is None or completion is None:
        return None
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    cached = meta.get("cached_tokens")
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    return usage


def complete_at_once(call: GenerateCall) -> list[dict[str, Any]]:
    """The answer to a request that has no token left to make: one finished chunk per sample."""
    usage = {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": 0,
        "total_tokens": call.prompt_tokens,
    }
    return [
        {
            "token_ids": [],
            "finish_reason": "length",
            "completion_usage": usage,
            **({"index": index} if call.samples > 1 else {}),
        }
        for index in range(call.samples)
    ]
