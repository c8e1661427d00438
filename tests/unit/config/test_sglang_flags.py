"""SGLang's flags pass through its own parser; we add clear errors and the explicit set."""

from __future__ import annotations

from pathlib import Path

import pytest
from sglang_worker.config.model_path import looks_like_path
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.errors import ConfigError

from tests.unit.config.support import late_refusal, parse, refusal


def test_only_given_flags_are_explicit() -> None:
    config = parse("--tp", "2", "--trust-remote-code", "--chunked-prefill-size=128")
    assert config.engine.explicit == {
        "model_path": "org/model",
        "tp_size": 2,
        "trust_remote_code": True,
        "chunked_prefill_size": 128,
    }


@pytest.mark.parametrize(
    ("flag", "near"),
    [
        ("--model-pth", "--model-path"),
        ("--mem-fraction-sttic", "--mem-fraction-static"),
        ("--embeding-worker", "--embedding-worker"),
        ("--request-plan", "--request-plane"),
    ],
)
def test_a_mistyped_flag_suggests_the_nearest_of_all_groups(flag: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown flag {flag}; did you mean {near}"):
        parse_worker_config([flag, "x"], {})


def test_a_flag_like_nothing_known_points_to_help() -> None:
    assert "unknown flag --zzyzx; sglang-worker --help" in late_refusal("--zzyzx")


def test_a_stray_word_is_named() -> None:
    assert "unexpected argument 'prefill'" in late_refusal("prefill")


def test_a_missing_model_path_is_named() -> None:
    with pytest.raises(ConfigError, match="--model-path is missing"):
        parse_worker_config(["--tp", "2"], {})


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (("--tp", "two"), ["--tp", "'two'"]),
        (("--linear-attn-backend", "cuda"), ["--linear-attn-backend", "'cuda'", "flashinfer"]),
        (("--linear-attn-verify-backend", "x"), ["--linear-attn-verify-backend", "nv_cutedsl"]),
        (("--kv-events-config", "{"), ["--kv-events-config", "JSON"]),
        (("--kv-events-config", "[]"), ["--kv-events-config", "object"]),
        (("--tokenizer-worker-num", "2"), ["--tokenizer-worker-num=2", "--gateway-workers 2"]),
        (("--lora-paths", "{bad}"), ["command line"]),
        (("--schedule-low-priority",), ["--schedule-low-priority-values-first", "priority"]),
        (("--model-path",), ["--model-path", "expected one argument"]),
    ],
)
def test_wrong_sglang_values_end_in_one_line(flags: tuple[str, ...], parts: list[str]) -> None:
    text = late_refusal(*flags)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("one", ("one",)),
        ("one,two three", ("one", "two", "three")),
        (" a , a ", ("a",)),
    ],
)
def test_several_served_names_share_the_flag(names: str, expected: tuple[str, ...]) -> None:
    assert parse("--served-model-name", names).model.served_model_names == expected


def test_the_model_path_names_the_model_when_nothing_else_does() -> None:
    assert parse().model.served_model_names == ("org/model",)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("org/model", False),
        ("gpt2", False),
        ("s3://bucket/a/b", False),
        ("/models/x", True),
        ("./x", True),
        ("../x", True),
        ("~/x", True),
        ("a/b/c", True),
    ],
)
def test_paths_are_told_from_hub_names(value: str, expected: bool) -> None:
    assert looks_like_path(value) is expected


def test_a_beginning_that_is_a_local_folder_makes_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    assert looks_like_path("models/missing")


@pytest.mark.parametrize(
    "flag", ["--model-path", "--tokenizer-path", "--speculative-draft-model-path"]
)
def test_a_missing_local_path_is_refused_before_any_load(flag: str) -> None:
    text = late_refusal(flag, "/no/such/model")
    assert f"{flag}='/no/such/model' does not exist" in text


@pytest.mark.parametrize(
    ("flags", "variables", "parts"),
    [
        (("--default-chat-template-kwargs", "{}"), {}, ["--default-chat-template-kwargs", "front"]),
        (("--rerank-worker",), {}, ["--rerank-worker"]),
        ((), {"DYN_SGL_RERANK_WORKER": "1"}, ["DYN_SGL_RERANK_WORKER"]),
        (("--enable-rl",), {}, ["--enable-rl", "--engine-route"]),
        ((), {"DYN_SGL_ENABLE_RL": "on"}, ["DYN_SGL_ENABLE_RL"]),
        (("--multimodal-worker",), {}, ["--multimodal-worker", "--dedicated-mm-encoder"]),
        (("--multimodal-encode-worker",), {}, ["--disaggregation-mode encode"]),
        ((), {"DYN_SGL_MULTIMODAL_ENCODE_WORKER": "1"}, ["DYN_SGL_MULTIMODAL_ENCODE_WORKER"]),
        ((), {"DYN_SGL_MULTIMODAL_WORKER": "yes"}, ["DYN_SGL_MULTIMODAL_WORKER"]),
        ((), {"DYN_SGL_MULTIMODAL_WORKER": "si"}, ["DYN_SGL_MULTIMODAL_WORKER", "boolean"]),
        ((), {"DYN_SNAPSHOT_CONTROL_DIR": "/x"}, ["DYN_SNAPSHOT_CONTROL_DIR"]),
    ],
)
def test_upstreams_other_flags_are_refused_by_name_with_the_reason(
    flags: tuple[str, ...], variables: dict[str, str], parts: list[str]
) -> None:
    text = refusal(*flags, **variables)
    assert all(part in text for part in parts), text


def test_refused_switches_that_say_no_are_harmless() -> None:
    assert parse("--no-rerank-worker", DYN_SGL_ENABLE_RL="0", DYN_SGL_MULTIMODAL_WORKER="")


def test_engine_routes_unite_variable_first_and_refuse_duplicates() -> None:
    config = parse(
        "--engine-route", "c=flush_cache", DYN_SGLANG_ENGINE_ROUTES=" a=flush_cache\n b:tm "
    )
    assert [route.text for route in config.system.routes] == [
        "a=flush_cache",
        "b:tm",
        "c=flush_cache",
    ]
    text = refusal("--engine-route", "a=x", DYN_SGLANG_ENGINE_ROUTES="a=y")
    assert "a=x" in text and "a=y" in text


def test_routes_without_a_listener_are_noticed() -> None:
    assert any("DYN_SYSTEM_PORT" in n for n in parse("--engine-route", "flush_cache").notices)
    assert not parse("--engine-route", "flush_cache", DYN_SYSTEM_PORT="0").notices


def test_a_short_runtime_deadline_is_noticed() -> None:
    notices = parse(DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS="3").notices
    assert any("DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS" in notice for notice in notices)


def test_the_deprecated_tokenizer_is_noticed() -> None:
    assert any("--dyn-chat-processor" in n for n in parse("--use-sglang-tokenizer").notices)


def test_frontend_decoding_is_refused_on_internal_workers() -> None:
    text = refusal("--enable-multimodal", "--dedicated-mm-encoder", "--frontend-decoding")
    assert "--frontend-decoding" in text and "--dedicated-mm-encoder" in text
    assert parse("--enable-multimodal", "--frontend-decoding").model.frontend_decoding
