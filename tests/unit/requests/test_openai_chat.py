from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sglang_worker.requests.errors import EndedByEngine, InvalidRequest
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import GenerateCall, map_request
from sglang_worker.requests.openai_chat import ChatChunkWriter, preprocess

HELLO = [{"role": "user", "content": "hello"}]


class Template:
    """Renders to three tokens and remembers what it was given."""

    def __init__(self) -> None:
        self.arguments: Mapping[str, Any] = {}

    def __call__(self, messages: list[Any], arguments: Mapping[str, Any]) -> list[int]:
        self.arguments = arguments
        if messages[0].get("role") == "nobody":
            raise ValueError("unknown role")
        return [1, 2, 3]


def mapped(**request: Any) -> GenerateCall:
    body = {"model": "m", "messages": HELLO, **request}
    return map_request(
        preprocess(body, Template()), EngineLimits(vocab_size=100, context_length=64)
    )


def test_a_chat_request_maps_as_its_preprocessed_form_does() -> None:
    call = mapped(max_tokens=5, temperature=0.5, stop=["x"], seed=3, n=2, min_tokens=1)
    assert call.fields["input_ids"] == [1, 2, 3]
    assert call.fields["sampling_params"] == {
        "temperature": 0.5,
        "sampling_seed": 3,
        "n": 2,
        "max_new_tokens": 5,
        "stop": ["x"],
        "min_new_tokens": 1,
    }


def test_the_newer_name_of_the_length_wins() -> None:
    assert mapped(max_tokens=5, max_completion_tokens=7).max_tokens == 7


@pytest.mark.parametrize(
    ("wanted", "schema"),
    [
        ({"type": "json_object"}, '{"type": "object"}'),
        ({"type": "json_schema", "json_schema": {"schema": {"type": "null"}}}, '{"type": "null"}'),
    ],
)
def test_a_response_format_is_a_schema(wanted: dict[str, Any], schema: str) -> None:
    call = mapped(response_format=wanted)
    assert call.fields["sampling_params"]["json_schema"] == schema


def test_the_template_gets_the_clients_arguments_but_not_the_reserved_ones() -> None:
    template = Template()
    preprocess(
        {
            "messages": HELLO,
            "tools": [{"type": "function"}],
            "chat_template_kwargs": {"enable_thinking": False, "tokenize": True},
        },
        template,
    )
    assert template.arguments == {"enable_thinking": False, "tools": [{"type": "function"}]}


@pytest.mark.parametrize(
    ("request_fields", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [3]}, "messages[0]"),
        ({"messages": [{"role": "nobody"}]}, "messages"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "verse"}}, "response_format"),
        ({"response_format": 3}, "response_format"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"max_tokens": 1000}, "max_tokens"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
        ),
    ],
)
def test_what_cannot_be_served_is_named(request_fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        mapped(**request_fields)
    assert caught.value.field == field


def output(text: str, finish: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    meta = {"finish_reason": finish, "prompt_tokens": 3, "completion_tokens": 2}
    return {"text": text, "output_ids": [1], "meta_info": meta, **more}


def test_chunks_are_openais_with_the_role_first_and_usage_last() -> None:
    writer = ChatChunkWriter(mapped(), {"model": "m"}, "id-1")
    first = writer.write(output("He"))
    second = writer.write(output("llo"))
    last = writer.write(output("", {"type": "stop", "matched": 2}))
    assert first is not None
    assert second is not None
    assert last is not None
    assert (first["id"], first["object"], first["model"]) == ("id-1", "chat.completion.chunk", "m")
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": "He"}, "finish_reason": None}
    ]
    assert second["choices"][0]["delta"] == {"content": "llo"}
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["usage"]["total_tokens"] == 5
    assert "usage" not in first


def test_a_stream_has_usage_only_when_asked_for() -> None:
    plain = ChatChunkWriter(mapped(), {"stream": True}, "i").write(output("", {"type": "length"}))
    asked = ChatChunkWriter(
        mapped(), {"stream": True, "stream_options": {"include_usage": True}}, "i"
    ).write(output("", {"type": "length"}))
    assert plain is not None
    assert asked is not None
    assert ("usage" in plain, "usage" in asked) == (False, True)


def test_an_output_without_text_makes_no_chunk_and_an_abort_is_an_error() -> None:
    writer = ChatChunkWriter(mapped(), {}, "i")
    assert writer.write(output("")) is None
    with pytest.raises(EndedByEngine):
        writer.write(output("", {"type": "abort"}))
