"""A fast parse: SGLang's parser is built once per session, the rest is the real thing."""

from __future__ import annotations

import pytest
from sglang_worker.config.parse import parse_early, parse_worker_config
from sglang_worker.config.rules import Given
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.errors import ConfigError

MODEL = ("--model-path", "org/model")


def parse(*flags: str, **variables: str) -> WorkerConfig:
    return parse_worker_config([*MODEL, *flags], variables)


def early(*flags: str, **variables: str) -> Given:
    """Only what needs no SGLang."""
    return parse_early([*MODEL, *flags], variables)


def refusal(*flags: str, **variables: str) -> str:
    """The one line of a configuration that is refused before SGLang is imported."""
    with pytest.raises(ConfigError) as caught:
        parse_early([*MODEL, *flags], variables)
    return _one_line(caught.value)


def late_refusal(*flags: str, **variables: str) -> str:
    """The one line of a configuration that only SGLang's parser can tell is wrong."""
    with pytest.raises(ConfigError) as caught:
        parse_worker_config([*MODEL, *flags], variables)
    return _one_line(caught.value)


def _one_line(error: ConfigError) -> str:
    text = str(error)
    assert text and "\n" not in text
    assert error.exit_code == 2
    return text
