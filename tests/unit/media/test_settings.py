"""Bounds on media come from Dynamo's variables and SGLang's flags."""

from __future__ import annotations

import pytest
from sglang_worker.errors import ConfigError
from sglang_worker.media.settings import MIB, read_settings


def test_the_bounds_have_dynamos_defaults() -> None:
    settings = read_settings({})
    assert (settings.max_bytes, settings.max_data_uri_bytes) == (64 * MIB, 16 * MIB)
    assert not settings.allow_internal
    assert not settings.trust_proxy


def test_variables_set_them_and_the_engines_flag_comes_first() -> None:
    environ = {
        "DYN_MM_MAX_FILE_SIZE_MB": "5",
        "DYN_MM_MAX_DATA_URL_MB": "3",
        "DYN_MM_ALLOW_INTERNAL": "1",
        "DYN_MM_TRUST_EGRESS_PROXY": "yes",
    }
    settings = read_settings(environ)
    assert (settings.max_bytes, settings.max_data_uri_bytes) == (5 * MIB, 3 * MIB)
    assert settings.allow_internal
    assert settings.trust_proxy
    assert read_settings(environ, media_url_max_file_size_mb=7).max_bytes == 7 * MIB


def test_host_names_are_compared_in_lower_case_without_a_final_dot() -> None:
    hosts = read_settings({}, allowed_media_domains=["Images.Example.org."]).allowed_hosts
    assert hosts == {"images.example.org"}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DYN_MM_MAX_FILE_SIZE_MB", "0"),
        ("DYN_MM_MAX_FILE_SIZE_MB", "many"),
        ("DYN_MM_MAX_DATA_URL_MB", "-1"),
        ("DYN_MM_ALLOW_INTERNAL", "maybe"),
    ],
)
def test_a_malformed_value_is_an_error_that_names_the_variable(variable: str, value: str) -> None:
    with pytest.raises(ConfigError, match=variable):
        read_settings({variable: value})


def test_fetching_without_a_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match="--media-url-max-file-size-mb 0"):
        read_settings({}, media_url_max_file_size_mb=0)
