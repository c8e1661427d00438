"""The worker's own flags and variables: same checks for both, every error names its source."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sglang_worker.config.flags import OWN_FLAGS, Kind

from tests.unit.config.support import early, refusal


@pytest.mark.parametrize("word", ["1", "true", "on", "yes", "TRUE", " Yes "])
def test_a_true_word_in_a_variable_switches_on(word: str) -> None:
    assert early(DYN_SGL_EMBEDDING_WORKER=word).own["embedding_worker"] is True


@pytest.mark.parametrize("word", ["0", "false", "off", "no", "", "False"])
def test_a_false_word_in_a_variable_switches_off(word: str) -> None:
    assert early(DYN_SGL_RUNNER_REPORT_STRICT=word).own["runner_report_strict"] is False


@pytest.mark.parametrize("flag", [f for f in OWN_FLAGS if f.kind is Kind.SWITCH and f.name])
def test_any_other_word_is_an_error_that_names_the_variable(flag: object) -> None:
    variable = flag.variable  # type: ignore[attr-defined]
    text = refusal(**{variable: "maybe"})
    assert variable in text and "'maybe'" in text and "1/true/on/yes" in text


@pytest.mark.parametrize("flag", [f for f in OWN_FLAGS if f.kind is Kind.SWITCH and f.name])
def test_every_switch_has_a_no_form_that_wins_over_its_variable(flag: object) -> None:
    name, variable = flag.name, flag.variable  # type: ignore[attr-defined]
    own = early(f"--no-{name[2:]}", **{variable: "1"}).own
    assert own[flag.dest] is False  # type: ignore[attr-defined]


def test_a_flag_wins_over_its_variable() -> None:
    assert early("--shutdown-timeout", "7", DYN_SGL_SHUTDOWN_TIMEOUT_S="9").own[
        "shutdown_timeout_s"
    ] == pytest.approx(7)


def test_an_empty_variable_is_an_unset_variable() -> None:
    assert early(DYN_SYSTEM_PORT=" ").own["system_port"] == -1


@pytest.mark.parametrize(
    ("flags", "variables", "parts"),
    [
        ((), {"DYN_SYSTEM_PORT": "70000"}, ["DYN_SYSTEM_PORT='70000'", "0 (a free port)"]),
        ((), {"DYN_SYSTEM_PORT": "-2"}, ["DYN_SYSTEM_PORT='-2'", "-1 (no listener)"]),
        ((), {"DYN_SYSTEM_PORT": "http"}, ["DYN_SYSTEM_PORT='http'", "whole number"]),
        ((), {"DYN_SYSTEM_PORT": "8081.5"}, ["DYN_SYSTEM_PORT"]),
        (("--metadata-port", "32768"), {}, ["--metadata-port='32768'", "32767"]),
        (("--metadata-port", "-1"), {}, ["--metadata-port='-1'", "out of range"]),
        ((), {"DYN_SGL_METADATA_PORT": "x"}, ["DYN_SGL_METADATA_PORT='x'"]),
        (("--shutdown-timeout", "soon"), {}, ["--shutdown-timeout='soon'", "seconds"]),
        (("--shutdown-timeout", "nan"), {}, ["--shutdown-timeout='nan'", "finite"]),
        ((), {"DYN_SGL_SHUTDOWN_TIMEOUT_S": "-1"}, ["DYN_SGL_SHUTDOWN_TIMEOUT_S='-1'"]),
        (
            (),
            {"DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "inf"},
            ["DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS='inf'"],
        ),
        ((), {"DYN_SYSTEM_HOST": "local host"}, ["DYN_SYSTEM_HOST='local host'"]),
        ((), {"DYN_SYSTEM_HOST": "1.2.3"}, ["DYN_SYSTEM_HOST='1.2.3'"]),
        ((), {"DYN_SGL_REFERENCE_PLATFORM": "gpu"}, ["DYN_SGL_REFERENCE_PLATFORM='gpu'", "auto"]),
        (("--embedding-transfer-mode", "rdma"), {}, ["--embedding-transfer-mode", "nixl-write"]),
        (("--sglang-trace-level", "5"), {}, ["--sglang-trace-level='5'", "1 to 4"]),
        ((), {"SGLANG_TRACE_LEVEL": "0"}, ["SGLANG_TRACE_LEVEL='0'"]),
        (("--gateway-workers", "0"), {}, ["--gateway-workers='0'", "1 to 64"]),
        ((), {"DYN_SGL_GATEWAY_WORKERS": "65"}, ["DYN_SGL_GATEWAY_WORKERS='65'"]),
        (("--system-token-file", "/no/such"), {}, ["--system-token-file='/no/such'", "existing"]),
        ((), {"DYN_SYSTEM_TOKEN_FILE": "/no/such"}, ["DYN_SYSTEM_TOKEN_FILE='/no/such'"]),
        (("--check", "deep"), {}, ["--check", "static"]),
        (("--embedding-worker=1",), {}, ["--embedding-worker"]),
    ],
)
def test_a_wrong_value_is_refused_with_its_source_and_what_is_accepted(
    flags: tuple[str, ...], variables: dict[str, str], parts: list[str]
) -> None:
    text = refusal(*flags, **variables)
    assert all(part in text for part in parts), text


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "[::]", "localhost", "node-1.example"])
def test_addresses_and_names_are_hosts(host: str) -> None:
    assert early(DYN_SYSTEM_HOST=host).own["system_host"] == host.strip("[]")


def test_an_empty_token_file_protects_nothing_and_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    assert "is empty" in refusal("--system-token-file", str(tmp_path / "token"))


def test_the_two_servers_need_two_ports() -> None:
    text = refusal("--metadata-port", "8081", DYN_SYSTEM_PORT="8081")
    assert "--metadata-port=8081" in text and "DYN_SYSTEM_PORT" in text


def test_two_free_ports_do_not_collide() -> None:
    own = early("--metadata-port", "0", DYN_SYSTEM_PORT="0").own
    assert (own["system_port"], own["metadata_port"]) == (0, 0)


def test_the_reference_platform_takes_boolean_words_too() -> None:
    assert early(DYN_SGL_REFERENCE_PLATFORM="0").own["reference_platform"] == "off"
    assert early(DYN_SGL_REFERENCE_PLATFORM="Yes").own["reference_platform"] == "on"


def test_parsing_never_changes_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYN_NAMESPACE", "from-the-process")
    monkeypatch.setenv("DYN_ENGINE_REQUEST_LIMIT", "not a number")
    before = dict(os.environ)
    given = early(DYN_NAMESPACE="given")
    assert given.dynamo["namespace"] == "given"
    assert dict(os.environ) == before
