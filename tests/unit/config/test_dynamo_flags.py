"""Dynamo's runtime flags keep Dynamo's names, defaults and choices; variables are strict."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from sglang_worker.config.dynamo_flags import declare_router, declare_runtime

from tests.unit.config.support import early, late_refusal, parse, refusal


def test_every_documented_flag_of_dynamo_has_a_variable() -> None:
    declared = declare_runtime()
    lacking = [a.dest for a in declared.parser._actions if a.dest not in declared.variables]
    assert lacking == []


def test_defaults_are_dynamos_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DYN_NAMESPACE", "elsewhere")
    monkeypatch.setenv("DYN_TCP_TLS_HANDSHAKE_TIMEOUT_SECS", "broken")
    assert declare_runtime().parser.get_default("namespace") == "dynamo"


@pytest.mark.parametrize(
    ("plane", "variable", "wrong", "accepted"),
    [
        ("--request-plane", "DYN_REQUEST_PLANE", "TCP", "nats, tcp"),
        ("--response-plane", "DYN_RESPONSE_PLANE", "http", "quic, tcp"),
        ("--event-plane", "DYN_EVENT_PLANE", "Zmq", "nats, zmq"),
        ("--discovery-backend", "DYN_DISCOVERY_BACKEND", "File", "etcd, file, kubernetes, mem"),
    ],
)
def test_planes_are_exact_names(plane: str, variable: str, wrong: str, accepted: str) -> None:
    for text, source in (
        (refusal(plane, wrong), plane),
        (refusal(**{variable: wrong}), variable),
    ):
        assert source in text and repr(wrong) in text and accepted in text


def test_booleans_in_dynamos_variables_are_strict_too() -> None:
    text = refusal(DYN_FPM_TRACE="ja")
    assert "DYN_FPM_TRACE='ja'" in text and "1/true/on/yes" in text
    assert early(DYN_FPM_TRACE="on").dynamo["fpm_trace"] is True


@pytest.mark.parametrize(
    ("flags", "variables", "parts"),
    [
        (("--engine-request-limit", "0"), {}, ["--engine-request-limit=0", "above 0"]),
        ((), {"DYN_ENGINE_REQUEST_LIMIT": "-3"}, ["DYN_ENGINE_REQUEST_LIMIT=-3"]),
        ((), {"DYN_ENGINE_REQUEST_LIMIT": "few"}, ["DYN_ENGINE_REQUEST_LIMIT='few'"]),
        (("--tcp-tls-handshake-timeout", "0"), {}, ["--tcp-tls-handshake-timeout=0"]),
        (("--endpoint", "a.b"), {}, ["--endpoint='a.b'", "dyn://namespace.component.endpoint"]),
        ((), {"DYN_ENDPOINT": "dyn://a.b.c.d"}, ["DYN_ENDPOINT='dyn://a.b.c.d'"]),
        (("--endpoint", "dyn://a..c"), {}, ["--endpoint"]),
        (("--namespace=--",), {}, ["--namespace", "'--' is no value"]),
        (("--namespace", "a b"), {}, ["--namespace='a b'"]),
        ((), {"DYN_NAMESPACE": "a.b"}, ["DYN_NAMESPACE='a.b'"]),
        ((), {"DYN_NAMESPACE_WORKER_SUFFIX": "a/b"}, ["DYN_NAMESPACE_WORKER_SUFFIX='a/b'"]),
        (("--endpoint-types", "chat,images"), {}, ["--endpoint-types", "completions"]),
        ((), {"DYN_ENDPOINT_TYPES": "none,chat"}, ["DYN_ENDPOINT_TYPES", "none"]),
        (("--endpoint-types", ","), {}, ["--endpoint-types"]),
        (("--dyn-default-thinking-mode", "maybe"), {}, ["--dyn-default-thinking-mode", "enabled"]),
        ((), {"DYN_DEFAULT_THINKING_MODE": "on"}, ["DYN_DEFAULT_THINKING_MODE='on'", "disabled"]),
        (("--output-modalities", "smell"), {}, ["--output-modalities", "smell", "text"]),
        ((), {"DYN_HEALTH_CHECK_PAYLOAD": "{"}, ["DYN_HEALTH_CHECK_PAYLOAD", "JSON"]),
        (("--health-check-payload", "[1]"), {}, ["--health-check-payload", "object"]),
        (("--health-check-payload", "@/no/file"), {}, ["--health-check-payload", "/no/file"]),
        (("--dyn-structural-tag", '{"scope": "never"}'), {}, ["--dyn-structural-tag"]),
        (
            ("--dyn-structural-tag", "false", "--dyn-structural-tag-scope", "auto"),
            {},
            ["--dyn-structural-tag-scope"],
        ),
        (("--router-mode", "fast"), {}, ["--router-mode", "round-robin"]),
    ],
)
def test_wrong_values_name_their_source(
    flags: tuple[str, ...], variables: dict[str, str], parts: list[str]
) -> None:
    text = refusal(*flags, **variables)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    ("flag", "variable"),
    [
        ("--dyn-tool-call-parser", "DYN_TOOL_CALL_PARSER"),
        ("--dyn-reasoning-parser", "DYN_REASONING_PARSER"),
    ],
)
def test_unknown_parsers_list_the_accepted_names_for_flag_and_variable(
    flag: str, variable: str
) -> None:
    for text, source in (
        (refusal(flag, "gpt9"), flag),
        (refusal(**{variable: "gpt9"}), variable),
    ):
        assert source in text and "'gpt9'" in text and "qwen3_coder" in text


@pytest.mark.parametrize("kind", ["tool-call", "reasoning"])
def test_two_parsers_of_one_kind_are_a_conflict_that_lists_the_names(kind: str) -> None:
    native = {"tool-call": "qwen25", "reasoning": "qwen3"}[kind]
    ours = {"tool-call": "hermes", "reasoning": "basic"}[kind]
    variable = f"DYN_{kind.replace('-', '_').upper()}_PARSER"
    by_flag = late_refusal(f"--{kind}-parser", native, f"--dyn-{kind}-parser", ours)
    assert f"--{kind}-parser" in by_flag and f"--dyn-{kind}-parser" in by_flag
    by_variable = late_refusal(f"--{kind}-parser", native, **{variable: ours})
    assert variable in by_variable and "deepseek_v3" in by_variable


def test_parsers_of_different_kinds_go_together() -> None:
    config = parse("--dyn-reasoning-parser", "qwen3", "--tool-call-parser", "qwen25")
    assert config.model.reasoning_parser == "qwen3"
    assert config.engine.explicit["tool_call_parser"] == "qwen25"


def test_the_namespace_gets_the_pools_suffix() -> None:
    config = parse(DYN_NAMESPACE="prod", DYN_NAMESPACE_WORKER_SUFFIX="blue")
    assert config.endpoint.path == "prod-blue.backend.generate"


def test_an_explicit_endpoint_wins_over_namespace_and_default() -> None:
    config = parse("--endpoint", "dyn://a.b.c", "--namespace", "other")
    assert config.endpoint.path == "a.b.c"


def test_a_flag_wins_over_dynamos_variable() -> None:
    given = early("--request-plane", "tcp", DYN_REQUEST_PLANE="nonsense")
    assert given.dynamo["request_plane"] == "tcp"


def test_what_was_set_is_handed_to_the_rust_runtime() -> None:
    given = early("--engine-request-limit", "4", "--tcp-tls-insecure", DYN_FPM_TRACE="yes")
    assert given.dynamo.environment == {
        "DYN_ENGINE_REQUEST_LIMIT": "4",
        "DYN_TCP_TLS_INSECURE": "1",
        "DYN_FPM_TRACE": "1",
    }


def test_a_health_payload_comes_from_text_or_file(tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text('{"token_ids": [1]}')
    for text in ('{"token_ids": [1]}', f"@{file}"):
        assert parse("--health-check-payload", text).health_check_payload == {"token_ids": [1]}


def test_routing_is_advertised_only_when_a_mode_is_given() -> None:
    assert parse().router == {}
    router = parse("--router-mode", "kv").router
    assert router["router_mode"] == "kv" and len(router) > 5


def test_the_template_must_exist_and_excludes_sglangs_tokenizer(tmp_path: Path) -> None:
    assert "--custom-jinja-template='/no/t'" in refusal("--custom-jinja-template", "/no/t")
    assert "DYN_CUSTOM_JINJA_TEMPLATE" in refusal(DYN_CUSTOM_JINJA_TEMPLATE="/no/t")
    template = tmp_path / "t.jinja"
    template.write_text("{{ messages }}")
    text = refusal("--custom-jinja-template", str(template), "--use-sglang-tokenizer")
    assert "--custom-jinja-template" in text and "--use-sglang-tokenizer" in text
    assert parse("--custom-jinja-template", str(template)).model.custom_jinja_template == str(
        template
    )


def test_a_template_path_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.jinja").write_text("x")
    monkeypatch.setenv("HOME", str(tmp_path))
    config = parse("--custom-jinja-template", "~/t.jinja")
    assert config.model.custom_jinja_template == str(tmp_path / "t.jinja")


def test_the_router_group_keeps_its_variables() -> None:
    declared = declare_router()
    assert declared.variables["router_mode"] == "DYN_ROUTER_MODE"
    assert all(isinstance(a, argparse.Action) for a in declared.parser._actions)
