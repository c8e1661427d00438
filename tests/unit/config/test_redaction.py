"""No secret leaves the process, in whatever shape SGLang or an operator wraps it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sglang_worker.redaction import (
    REDACTED,
    hide_in_logs,
    is_secret_name,
    redact,
    redact_arguments,
    redact_command,
    redact_text,
    secret_values,
)

SECRET = "s3cret-value-42"


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "admin_api_key",
        "--api-key",
        "ssl_keyfile_password",
        "watermark_key_b",
        "HF_TOKEN",
        "watermark_config",
        "AWS_SECRET_ACCESS_KEY",
        "Authorization",
        "token",
    ],
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer_path",
        "max_total_tokens",
        "bos_token_id",
        "ssl_keyfile",
        "speculative_token_map",
        "enable_watermark",
        "key",
        "num_reserved_decode_tokens",
    ],
)
def test_ordinary_names_are_left_alone(name: str) -> None:
    assert not is_secret_name(name)


def test_server_info_is_redacted_at_every_depth() -> None:
    info = {
        "api_key": SECRET,
        "internal_states": [
            {"admin_api_key": SECRET, "nested": ({"ssl_keyfile_password": SECRET},)}
        ],
        "launch_command": f"python -m x --api-key {SECRET} --admin-api-key={SECRET} --tp 2",
        "model_path": "org/model",
        "max_total_tokens": 7,
    }
    cleaned = redact(info)
    assert SECRET not in json.dumps(cleaned)
    assert cleaned["model_path"] == "org/model" and cleaned["max_total_tokens"] == 7
    assert cleaned["launch_command"].endswith("--tp 2")


def test_a_secret_is_also_cut_out_of_texts_that_repeat_it() -> None:
    assert redact({"api_key": SECRET, "note": f"started with {SECRET}!"})["note"] == (
        f"started with {REDACTED}!"
    )


def test_absent_secrets_stay_visible_as_absent() -> None:
    assert redact({"api_key": None, "token": "", "admin_api_key": False}) == {
        "api_key": None,
        "token": "",
        "admin_api_key": False,
    }


def test_json_inside_a_text_is_redacted_too() -> None:
    cleaned = redact({"model_loader_extra_config": json.dumps({"api_key": SECRET, "a": 1})})
    assert json.loads(cleaned["model_loader_extra_config"]) == {"api_key": REDACTED, "a": 1}


@pytest.mark.parametrize(
    "argv",
    [
        ["--api-key", SECRET],
        [f"--api-key={SECRET}"],
        ["--model-loader-extra-config", json.dumps({"api_key": SECRET})],
        ["--watermark-config", json.dumps({"key": SECRET})],
        ["--dist-init-addr", f"tcp://user:{SECRET}@host:1"],
    ],
)
def test_command_lines_hide_the_values_of_secret_flags(argv: list[str]) -> None:
    assert SECRET not in " ".join(redact_arguments(argv))
    assert SECRET not in redact_command(argv)
    assert redact_arguments([*argv, "--tp", "2"])[-2:] == ["--tp", "2"]


def test_a_secret_with_spaces_in_a_quoted_command_is_hidden_whole() -> None:
    assert (
        "open"
        not in redact({"launch_command": "x --api-key 'open sesame' --tp 2"})["launch_command"]
    )


def test_a_python_call_as_launch_command_is_hidden() -> None:
    call = f"Engine(model_path='m', api_key='{SECRET}', tp_size=2)"
    cleaned = redact({"launch_command": call})["launch_command"]
    assert SECRET not in cleaned and "tp_size=2" in cleaned


def test_bearer_tokens_and_url_passwords_leave_texts() -> None:
    text = redact_text(f"Authorization: Bearer {SECRET} via redis://u:{SECRET}@h/0")
    assert SECRET not in text and "redis://" in text


@pytest.fixture
def record_factory() -> Iterator[None]:
    before = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(before)


@pytest.mark.usefixtures("record_factory")
def test_no_log_record_holds_a_known_secret(caplog: pytest.LogCaptureFixture) -> None:
    hide_in_logs(secret_values({"api_key": SECRET, "admin_api_key": None, "tp": 2}))
    logger = logging.getLogger("test.secrets")
    logger.warning("server_args=%s", {"api_key": SECRET, "tp": 2})
    logger.warning("nothing to hide: %d", 7)
    assert SECRET not in caplog.text and REDACTED in caplog.text
    assert "nothing to hide: 7" in caplog.text


def test_without_secrets_logging_stays_as_it_is() -> None:
    before = logging.getLogRecordFactory()
    hide_in_logs(secret_values({"model_path": "org/model", "api_key": "x"}))
    assert logging.getLogRecordFactory() is before


def test_dictionaries_in_texts_are_redacted() -> None:
    text = redact_text(str({"api_key": SECRET, "tp": 2, "name": "a"}))
    assert SECRET not in text and "'tp': 2" in text and "'name': 'a'" in text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | st.just("api_key"), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(json_values)
def test_any_json_is_redacted_without_an_error_and_twice_is_once(value: object) -> None:
    once = redact(value)
    assert redact(once) == once


@given(json_values)
def test_a_planted_secret_never_survives(value: object) -> None:
    planted = {"a": value, "deep": [{"api_key": SECRET}], "launch_command": f"x --api-key {SECRET}"}
    assert SECRET not in json.dumps(redact(planted))
