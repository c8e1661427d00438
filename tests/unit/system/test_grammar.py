from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_worker.errors import ConfigError
from sglang_worker.system.descriptor import RouteDescriptor
from sglang_worker.system.grammar import parse_descriptors

ALLOWLIST = (
    "server_info=get_server_info pause_generation:tm flush_cache init_weights_update_group "
    "update_weights_from_distributed:tm destroy_weights_update_group continue_generation:tm"
)


def test_the_reference_allowlist_for_nccl_weight_updates_parses() -> None:
    parsed = parse_descriptors(ALLOWLIST.split())
    assert [(d.path, d.method, d.target) for d in parsed] == [
        ("server_info", "get_server_info", "engine"),
        ("pause_generation", "pause_generation", "tm"),
        ("flush_cache", "flush_cache", "engine"),
        ("init_weights_update_group", "init_weights_update_group", "engine"),
        ("update_weights_from_distributed", "update_weights_from_distributed", "tm"),
        ("destroy_weights_update_group", "destroy_weights_update_group", "engine"),
        ("continue_generation", "continue_generation", "tm"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("flush_cache:engine", ("flush_cache", "flush_cache", "engine")),
        ("ops/v1.2/flush-it=flush_cache", ("ops/v1.2/flush-it", "flush_cache", "engine")),
        ("9lives=flush_cache:tm", ("9lives", "flush_cache", "tm")),
        ("controls=flush_cache", ("controls", "flush_cache", "engine")),
        ("server_info=get_server_info:engine", ("server_info", "get_server_info", "engine")),
    ],
)
def test_every_form_of_the_grammar_is_accepted(text: str, expected: tuple[str, str, str]) -> None:
    assert parse_descriptors([text]) == (RouteDescriptor(*expected, text=text),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("flush cache", "whitespace"),
        ("a=b=c", "more than one '='"),
        ("a=b:tm:engine", "more than one ':'"),
        ("a:", "unknown target ''"),
        ("a:scheduler", "unknown target 'scheduler'"),
        ("a:TM", "unknown target 'TM'"),
        ("a:tm=b", "unknown target 'tm=b'"),
        ("=flush_cache", "has no path"),
        (":tm", "has no path"),
        ("a=", "names no method"),
        ("a=_private", "is private"),
        ("_private", "path segment '_private'"),
        ("a=__class__", "is private"),
        ("a=not-a-name", "no Python method name"),
        ("a=class", "no Python method name"),
        ("a=x.y", "no Python method name"),
        ("a/b", "a/b=<method>"),
        ("flush-cache", "flush-cache=<method>"),
        ("/a=b", "empty path segment"),
        ("a/=b", "empty path segment"),
        ("a//b=c", "empty path segment"),
        ("../a=b", "path segment '..'"),
        ("a/.b=c", "path segment '.b'"),
        ("a%2fb=c", "path segment 'a%2fb'"),
        ("ä=c", "path segment 'ä'"),
        ("status=get_load", "reserved"),
        ("drain=flush_cache", "reserved"),
        ("resume=flush_cache", "reserved"),
        ("openapi.json=flush_cache", "reserved"),
        ("control/flush=flush_cache", "reserved"),
        ("server_info", "can only be get_server_info"),
        ("server_info=flush_cache", "can only be get_server_info"),
        ("server_info=get_server_info:tm", "can only be get_server_info"),
    ],
)
def test_a_malformed_descriptor_fails_naming_itself_and_the_fault(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_descriptors([text])
    assert repr(text) in str(caught.value)
    assert reason in str(caught.value)


def test_a_duplicate_path_names_both_descriptors() -> None:
    with pytest.raises(ConfigError, match=r"'a=y:tm'.*already taken by 'a=x'"):
        parse_descriptors(["a=x", "b=x", "a=y:tm"])


@given(st.text(max_size=40))
def test_any_text_is_a_descriptor_or_a_config_error(text: str) -> None:
    try:
        (descriptor,) = parse_descriptors([text])
    except ConfigError as error:
        assert repr(text) in str(error)
    else:
        assert text.startswith(descriptor.path)
        assert not descriptor.method.startswith("_")
