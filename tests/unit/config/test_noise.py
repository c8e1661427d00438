"""Whatever an operator types, the answer is a configuration or one ConfigError."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sglang_worker.config.disagg_file import load_section
from sglang_worker.config.dynamo_flags import declare_router, declare_runtime
from sglang_worker.config.flags import OWN_FLAGS
from sglang_worker.config.model_facts import read_model
from sglang_worker.config.own_flags import build_parser
from sglang_worker.config.parse import parse_early, parse_worker_config
from sglang_worker.config.refused import REFUSED
from sglang_worker.config.strict_parser import option_strings
from sglang_worker.errors import ConfigError

OPTIONS = [
    *option_strings(build_parser()),
    *option_strings(declare_runtime().parser),
    *option_strings(declare_router().parser),
    *(entry.flag for entry in REFUSED if entry.flag),
    *("--model-path", "--config", "--tp", "--disaggregation-mode", "--lora-paths", "--nonsense"),
    *("--served-model-name", "--kv-events-config", "--speculative-algorithm", "--cuda-graph-bs"),
]
VARIABLES = [
    *(flag.variable for flag in OWN_FLAGS if flag.variable),
    *declare_runtime().variables.values(),
    *declare_router().variables.values(),
    *(entry.variable for entry in REFUSED if entry.variable),
    "DYN_NAMESPACE_WORKER_SUFFIX",
    "DYN_RUNTIME_GRACEFUL_SHUTDOWN_TIMEOUT_SECS",
]
MARKS = [*"01@[-/²١ \u0000"]
WORDS = ["", "-1", "true", "no", "tcp", "TCP", "nan", "1e999", "{}", "@/", "a.b.c", "1 2", "--"]
MORE = ["prefill", "encode", "x=y:tm", "org/model", "=a"]
words = st.sampled_from([*MARKS, *WORDS, *MORE]) | st.text(max_size=6)
tokens = st.one_of(
    st.sampled_from(OPTIONS),
    words,
    st.builds("{}={}".format, st.sampled_from(OPTIONS), words),
)
environments = st.dictionaries(st.sampled_from(VARIABLES), words, max_size=4)
argvs = st.lists(tokens, max_size=6)
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
KEYS = ["model-path", "tp_size", "trust-remote-code", "cuda-graph-bs-decode", "lora-paths"]
MORE_KEYS = ["disaggregation-mode", "config", "help", "log-level", "kv-events-config", "x"]
yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=True) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=2),
    max_leaves=5,
)
sections = yaml_values | st.dictionaries(
    st.sampled_from([*KEYS, *MORE_KEYS]) | st.integers(0, 3), yaml_values, max_size=3
)
RELAXED = [HealthCheck.too_slow]


def one_clear_line(error: ConfigError) -> bool:
    text = str(error)
    return bool(text.strip()) and len(text.splitlines()) == 1


@given(argvs, environments)
@settings(max_examples=400, deadline=None, suppress_health_check=RELAXED)
def test_noise_before_sglang_is_a_value_or_a_config_error(
    argv: list[str], environ: Mapping[str, str]
) -> None:
    try:
        parse_early(argv, environ)
    except ConfigError as error:
        assert one_clear_line(error), error


@given(argvs, environments)
@settings(max_examples=100, deadline=None, suppress_health_check=RELAXED)
def test_noise_through_all_parsers_is_a_value_or_a_config_error(
    argv: list[str], environ: Mapping[str, str]
) -> None:
    try:
        parse_worker_config(["--model-path", "org/model", *argv], environ)
    except ConfigError as error:
        assert one_clear_line(error), error


@given(sections)
@settings(max_examples=150, deadline=None, suppress_health_check=RELAXED)
def test_any_yaml_section_is_flags_or_a_config_error(section: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "disagg.yaml"
        file.write_text(yaml.safe_dump({"key": section}))
        argv = ["--model-path", "org/model", "--disagg-config", str(file)]
        try:
            parse_worker_config([*argv, "--disagg-config-key", "key"], {})
        except ConfigError as error:
            assert one_clear_line(error), error


@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
@settings(max_examples=100, deadline=None)
def test_any_bytes_as_a_file_are_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "disagg.yaml"
        file.write_bytes(content)
        (Path(folder) / "config.json").write_bytes(content)
        for read in (lambda: load_section(str(file), "key"), lambda: read_model("--m", folder)):
            try:
                read()
            except ConfigError as error:
                assert one_clear_line(error), error
