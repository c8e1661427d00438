"""ServerArgs carry the operator's flags, Dynamo's needs and, on the CPU platform, its defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.config.dump import contents, dump_config
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.config.server_args import build_server_args, overrides
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.errors import ConfigError

from tests.unit.config.support import parse

SECRET = "open-sesame-1"


def config_for(folder: Path, *flags: str, platform: str = "on") -> WorkerConfig:
    (folder / "config.json").write_text('{"architectures": ["Qwen2ForCausalLM"]}')
    return parse_worker_config(
        ["--model-path", str(folder), *flags], {"DYN_SGL_REFERENCE_PLATFORM": platform}
    )


def test_chunks_are_disjoint_and_the_first_name_leads(tmp_path: Path) -> None:
    args = build_server_args(config_for(tmp_path, "--served-model-name", "a,b"))
    assert args.incremental_streaming_output is True
    assert args.served_model_name == "a"
    assert args.skip_tokenizer_init is False


def test_the_platform_fills_in_what_the_operator_left_open(tmp_path: Path) -> None:
    args = build_server_args(config_for(tmp_path, "--max-running-requests", "3"))
    assert args.device == "cpu" and args.attention_backend == "triton"
    assert args.max_running_requests == 3


def test_elsewhere_the_platform_fills_in_nothing(tmp_path: Path) -> None:
    args = build_server_args(config_for(tmp_path, platform="off"))
    assert args.attention_backend is None


def test_what_the_platform_cannot_run_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--device cuda .*CPU reference platform"):
        build_server_args(config_for(tmp_path, "--device", "cuda"))


def test_a_disaggregated_worker_gets_a_bootstrap_port_of_its_own() -> None:
    wanted = overrides(parse("--disaggregation-mode", "prefill"), {})
    assert 0 < wanted["disaggregation_bootstrap_port"] < 65536
    fixed = parse("--disaggregation-mode", "decode", "--disaggregation-bootstrap-port", "9100")
    assert overrides(fixed, {})["disaggregation_bootstrap_port"] == 9100
    assert "disaggregation_bootstrap_port" not in overrides(parse(), {})


def test_a_diffusion_language_model_runs_few_requests_at_once() -> None:
    assert overrides(parse("--dllm-algorithm", "X"), {})["max_running_requests"] == 8


def test_a_users_flag_wins_over_a_platform_default() -> None:
    config = parse("--mem-fraction-static", "0.5")
    assert overrides(config, {"mem_fraction_static": 0.3})["mem_fraction_static"] == 0.5


def test_the_launch_command_holds_no_secret(tmp_path: Path) -> None:
    args = build_server_args(config_for(tmp_path, "--api-key", SECRET))
    assert args.launch_command.startswith("sglang-worker --model-path")
    assert SECRET not in args.launch_command


def test_the_dump_is_private_json_without_secrets(tmp_path: Path) -> None:
    target = tmp_path / "dump.json"
    config = config_for(tmp_path, "--api-key", SECRET, "--dump-config-to", str(target))
    dump_config(config, build_server_args(config))
    assert target.stat().st_mode & 0o777 == 0o600
    text = target.read_text()
    assert SECRET not in text
    dumped: dict[str, Any] = json.loads(text)
    assert dumped["worker"]["worker_type"] == "aggregated"
    assert dumped["server_args"]["model_path"] == str(tmp_path)


def test_a_dump_that_cannot_be_written_names_the_flag(tmp_path: Path) -> None:
    config = config_for(tmp_path, "--dump-config-to", str(tmp_path / "no" / "dir.json"))
    with pytest.raises(ConfigError, match="--dump-config-to"):
        dump_config(config)


def test_no_dump_is_written_unasked(tmp_path: Path) -> None:
    dump_config(config_for(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert contents(config_for(tmp_path))["server_args"] is None
