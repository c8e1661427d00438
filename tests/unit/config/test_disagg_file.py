"""One section of the YAML file becomes SGLang flags; the command line wins."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.config.support import late_refusal, parse, refusal

SECTIONS = """
prefill:
  disaggregation-mode: prefill
  tp_size: 2
  trust-remote-code: true
  skip-server-warmup: false
  cuda-graph-bs-decode: [1, 2, 4]
  linear-attn-backend: triton
  model-loader-extra-config: {a: 1}
  context-length: null
decode:
  disaggregation-mode: decode
empty:
words: [a]
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "disagg.yaml"
    path.write_text(SECTIONS)
    return str(path)


def test_the_section_becomes_flags(file: str) -> None:
    config = parse("--disagg-config", file, "--disagg-config-key", "prefill")
    assert config.worker_type == "prefill"
    explicit = config.engine.explicit
    assert explicit["tp_size"] == 2
    assert explicit["trust_remote_code"] is True
    assert "skip_server_warmup" not in explicit and "--skip-server-warmup" not in config.engine.argv
    assert explicit["model_loader_extra_config"] == '{"a": 1}'
    assert "context_length" not in explicit
    assert explicit["model_path"] == "org/model"


def test_lists_repeat_the_value(file: str) -> None:
    argv = parse("--disagg-config", file, "--disagg-config-key", "prefill").engine.argv
    at = next(i for i, token in enumerate(argv) if token == "--cuda-graph-bs-decode")
    assert argv[at + 1 : at + 4] == ("1", "2", "4")


def test_a_command_line_flag_wins(file: str) -> None:
    config = parse("--disagg-config", file, "--disagg-config-key", "prefill", "--tp-size", "4")
    assert config.engine.explicit["tp_size"] == 4


def test_file_and_key_may_come_from_variables(file: str) -> None:
    config = parse(DYN_SGL_DISAGG_CONFIG=file, DYN_SGL_DISAGG_CONFIG_KEY="decode")
    assert config.worker_type == "decode"


def test_an_empty_section_adds_nothing(file: str) -> None:
    assert (
        parse("--disagg-config", file, "--disagg-config-key", "empty").worker_type == "aggregated"
    )


def test_one_of_the_two_alone_is_an_error(file: str) -> None:
    assert "--disagg-config needs --disagg-config-key" in refusal("--disagg-config", file)
    text = refusal(DYN_SGL_DISAGG_CONFIG_KEY="prefill")
    assert "DYN_SGL_DISAGG_CONFIG_KEY needs --disagg-config" in text


def test_an_unknown_section_lists_those_that_exist(file: str) -> None:
    text = late_refusal("--disagg-config", file, "--disagg-config-key", "prefil")
    assert "'prefil'" in text and "decode, empty, prefill, words" in text


def test_a_section_that_is_no_mapping_is_refused(file: str) -> None:
    assert "must be a mapping" in late_refusal(
        "--disagg-config", file, "--disagg-config-key", "words"
    )


@pytest.mark.parametrize(
    ("yaml", "parts"),
    [
        ("p: {linear-attn-backend: cuda}", ["--linear-attn-backend", "'cuda'", "triton"]),
        ("p: {tp-sise: 2}", ["--tp-sise", "did you mean --tp-size"]),
        ("p: {tp-size: two}", ["--tp", "'two'"]),
        ("p: {trust-remote-code: maybe}", ["trust-remote-code", "true or false"]),
        ("p: {default-chat-template-kwargs: {a: 1}}", ["--default-chat-template-kwargs", "front"]),
        ("p: {disaggregation-mode: epd}", ["--disaggregation-mode", "'epd'"]),
        ("- p", ["mapping"]),
        ("{", ["YAML"]),
    ],
)
def test_faults_in_the_file_name_the_flag(tmp_path: Path, yaml: str, parts: list[str]) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(yaml)
    text = late_refusal("--disagg-config", str(path), "--disagg-config-key", "p")
    assert all(part in text for part in parts), text


def test_a_mode_of_dynamos_works_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("e: {disaggregation-mode: encode}")
    assert parse("--disagg-config", str(path), "--disagg-config-key", "e").worker_type == (
        "multimodal_encode"
    )


def test_sglangs_own_config_file_is_read_in_both_spellings(tmp_path: Path) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("tp-size: 2\n")
    for flags in (("--config", str(path)), (f"--config={path}",)):
        assert parse(*flags).engine.explicit["tp_size"] == 2


def test_two_config_files_are_refused(tmp_path: Path, file: str) -> None:
    path = tmp_path / "all.yaml"
    path.write_text("tp-size: 2\n")
    both = late_refusal(
        "--config", str(path), "--disagg-config", file, "--disagg-config-key", "decode"
    )
    assert "--config" in both and "--disagg-config" in both
    assert "2 times" in late_refusal("--config", str(path), "--config", str(path))
    assert "needs the path" in late_refusal("--config")
    assert "does not exist" in late_refusal("--config", "/no/file.yaml")


def test_the_temporary_file_is_private_and_gone_afterwards(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes: list[int] = []
    real = tempfile.mkstemp

    def watched(*args: Any, **kwargs: Any) -> tuple[int, str]:
        descriptor, path = real(*args, **kwargs, dir=tmp_path)
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        return descriptor, path

    monkeypatch.setattr(tempfile, "mkstemp", watched)
    parse("--disagg-config", file, "--disagg-config-key", "prefill")
    assert modes == [0o600]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disagg.yaml"]
