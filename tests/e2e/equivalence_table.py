"""The requests that frontend + worker and SGLang's own server must answer alike."""

from __future__ import annotations

from typing import Any

import msgspec

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"


class Case(msgspec.Struct, frozen=True):
    name: str
    path: str
    options: dict[str, Any]


SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}
# Options that both APIs take. Greedy, so that answers can be compared at all.
BOTH: dict[str, dict[str, Any]] = {
    "short": {"max_tokens": 4},
    "one_token": {"max_tokens": 1},
    "longer": {"max_tokens": 24},
    "to_its_end": {"max_tokens": 60},
    "ignore_eos": {"max_tokens": 12, "ignore_eos": True},
    "stop_string": {"max_tokens": 24, "stop": "er"},
    "stop_strings": {"max_tokens": 24, "stop": ["zzz", "th"]},
    "stop_string_absent": {"max_tokens": 8, "stop": ["zzzz"]},
    "stop_token": {"max_tokens": 24, "stop_token_ids": [270, 280, 290]},
    "min_tokens": {"max_tokens": 12, "min_tokens": 10},
    "frequency_penalty": {"max_tokens": 16, "frequency_penalty": 1.5},
    "presence_penalty": {"max_tokens": 16, "presence_penalty": 1.5},
    "repetition_penalty": {"max_tokens": 16, "repetition_penalty": 1.3},
    "top_k_one": {"max_tokens": 8, "temperature": 1.0, "top_k": 1},
    "top_p_tiny": {"max_tokens": 8, "temperature": 1.0, "top_p": 1e-6},
    "min_p_one": {"max_tokens": 8, "temperature": 1.0, "min_p": 1.0},
    "seed": {"max_tokens": 8, "seed": 7},
    # The frontend refuses n > 1 at temperature 0 (docs/requests.md).
    "two_answers": {"max_tokens": 6, "n": 2, "temperature": 1.0, "top_k": 1},
    "user": {"max_tokens": 4, "user": "someone"},
}
CHAT_ONLY: dict[str, dict[str, Any]] = {
    "max_completion_tokens": {"max_completion_tokens": 5},
    "logprobs": {"max_tokens": 5, "logprobs": True, "ignore_eos": True},
    "top_logprobs": {"max_tokens": 5, "logprobs": True, "top_logprobs": 3, "ignore_eos": True},
    "json_schema": {
        "max_tokens": 24,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": SCHEMA, "strict": True},
        },
    },
    "json_object": {"max_tokens": 8, "response_format": {"type": "json_object"}},
    "text_format": {"max_tokens": 4, "response_format": {"type": "text"}},
    "system_message": {
        "max_tokens": 6,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is a worker?"},
        ],
    },
    "conversation": {
        "max_tokens": 6,
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello."},
            {"role": "user", "content": "Who are you?"},
        ],
    },
    "unicode": {"max_tokens": 6, "messages": [{"role": "user", "content": "日本 ü €"}]},
    "text_parts": {
        "max_tokens": 4,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    },
}
PLAIN_ONLY: dict[str, dict[str, Any]] = {
    "token_prompt": {"max_tokens": 6, "prompt": [300, 301, 302]},
    "logprobs_zero": {"max_tokens": 5, "logprobs": 0, "ignore_eos": True},
    "logprobs_two": {"max_tokens": 5, "logprobs": 2, "ignore_eos": True},
    "long_prompt": {"max_tokens": 4, "prompt": "The worker streams tokens. " * 60},
}
# Both must refuse; the words may differ.
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "negative_temperature": (CHAT, {"temperature": -1}),
    "top_p_zero": (CHAT, {"top_p": 0}),
    "top_p_above_one": (PLAIN, {"top_p": 1.5}),
    "penalty_too_high": (CHAT, {"frequency_penalty": 3}),
    "min_above_max": (CHAT, {"max_tokens": 2, "min_tokens": 5}),
    "longer_than_the_context": (PLAIN, {"max_tokens": 100_000}),
    "prompt_too_long": (PLAIN, {"prompt": [300] * 5000, "max_tokens": 1}),
    "schema_of_no_type": (
        CHAT,
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": {"type": "objekt"}},
            }
        },
    ),
    "no_messages": (CHAT, {"messages": []}),
    "messages_as_text": (CHAT, {"messages": "hello"}),
}


def cases() -> list[Case]:
    made = [
        Case(f"{kind}_{name}", path, options)
        for kind, path in (("chat", CHAT), ("plain", PLAIN))
        for name, options in BOTH.items()
    ]
    made += [Case(f"chat_{name}", CHAT, options) for name, options in CHAT_ONLY.items()]
    made += [Case(f"plain_{name}", PLAIN, options) for name, options in PLAIN_ONLY.items()]
    return made


def body(case: Case, model: str) -> dict[str, Any]:
    filled: dict[str, Any] = {"model": model, "temperature": 0, **case.options}
    if case.path == CHAT:
        filled.setdefault("messages", [{"role": "user", "content": "What is a worker?"}])
    else:
        filled.setdefault("prompt", "The worker")
    return filled
