"""``--use-sglang-tokenizer`` (deprecated): the frontend sends the chat request as the client wrote
it and expects OpenAI chunks back; text is made from tokens and tokens from text in the worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sglang_worker.requests.chunks import finish_fields, usage_of
from sglang_worker.requests.errors import InvalidRequest
from sglang_worker.requests.mapping import GenerateCall
from sglang_worker.requests.validation import boolean, section, sequence, string

# Renders messages with the model's chat template and encodes the result.
Render = Callable[[list[Any], Mapping[str, Any]], list[int]]

_SAMPLING = (
    "n",
    "best_of",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
)
_STOPPING = ("min_tokens", "stop", "stop_token_ids", "ignore_eos")
_GUIDED = ("json", "regex", "choice", "grammar")
_RESERVED_TEMPLATE_ARGUMENTS = frozenset({"tokenize", "add_generation_prompt", "messages"})


def preprocess(request: Mapping[str, Any], render: Render) -> dict[str, Any]:
    """The request in the preprocessed form that `mapping.map_request` takes."""
    if boolean(request, "logprobs"):
        raise InvalidRequest("logprobs", "are not served with --use-sglang-tokenizer")
    max_tokens = request.get("max_completion_tokens")
    if max_tokens is None:
        max_tokens = request.get("max_tokens")
    sampling: dict[str, Any] = {name: request.get(name) for name in _SAMPLING}
    sampling["guided_decoding"] = _constraint(request)
    return {
        "model": request.get("model"),
        "token_ids": _prompt(request, render),
        "sampling_options": sampling,
        "stop_conditions": {
            "max_tokens": max_tokens,
            **{name: request.get(name) for name in _STOPPING},
        },
        "extra_args": {"messages": request.get("messages"), "nvext": request.get("nvext")},
        "cache_salt": request.get("cache_salt"),
    }


def _prompt(request: Mapping[str, Any], render: Render) -> list[int]:
    messages = sequence(request, "messages")
    if not messages:
        raise InvalidRequest("messages", "must not be empty")
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise InvalidRequest(f"messages[{position}]", "must be an object")
    arguments = {
        **section(request, "chat_template_kwargs"),
        **section(request, "chat_template_args"),
    }
    tools = sequence(request, "tools")
    if tools:
        arguments["tools"] = list(tools)
    kept = {
        name: value for name, value in arguments.items() if name not in _RESERVED_TEMPLATE_ARGUMENTS
    }
    try:
        return render([dict(message) for message in messages], kept)
    except InvalidRequest:
        raise
    except Exception as error:
        # Templates raise for what they don't accept, such as an unknown role.
        raise InvalidRequest("messages", f"the chat template refused them: {error}") from error


def _constraint(request: Mapping[str, Any]) -> dict[str, Any]:
    constraint = {name: request.get(f"guided_{name}") for name in _GUIDED}
    wanted = section(request, "response_format")
    kind = string(wanted, "type")
    if kind == "json_schema":
        constraint["json"] = section(wanted, "json_schema").get("schema")
    elif kind == "json_object":
        constraint["json"] = {"type": "object"}
    elif kind not in (None, "text"):
        raise InvalidRequest("response_format", f"type {kind!r} is not known")
    return constraint


class ChatChunkWriter:
    """Writes OpenAI ``chat.completion.chunk`` objects from SGLang's text deltas."""

    def __init__(self, call: GenerateCall, request: Mapping[str, Any], chunk_id: str) -> None:
        self._call = call
        self._model = request.get("model")
        self._id = chunk_id
        self._created = int(time.time())
        options = section(request, "stream_options")
        self._wants_usage = bool(options.get("include_usage")) or not request.get("stream")
        self._started: set[int] = set()

    def write(self, output: Mapping[str, Any]) -> dict[str, Any] | None:
        meta = output["meta_info"]
        finish = meta["finish_reason"]
        text = output.get("text") or ""
        if not text and finish is None:
            return None
        index = output.get("index") or 0
        delta: dict[str, Any] = {"content": text}
        if index not in self._started:
            self._started.add(index)
            delta["role"] = "assistant"
        ended = {} if finish is None else finish_fields(finish, self._call.user_stop_ids)
        chunk: dict[str, Any] = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [
                {"index": index, "delta": delta, "finish_reason": ended.get("finish_reason")}
            ],
        }
        if finish is not None and self._wants_usage:
            usage = usage_of(meta)
            if usage is not None:
                chunk["usage"] = usage
        return chunk
