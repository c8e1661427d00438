"""``--check`` against SGLang's real classes: no engine, but all of its imports."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.config.check import run_check
from sglang_worker.config.worker_config import WorkerType

QWEN = {"architectures": ["Qwen3NextForCausalLM"], "linear_num_value_heads": 4}


def static(*flags: str, **variables: str) -> tuple[dict[str, Any], int]:
    return run_check(["--model-path", "org/model", *flags], variables, "static")


def test_routes_resolve_against_sglangs_classes() -> None:
    plan, code = static("--engine-route", "pause=pause_generation:tm", DYN_SYSTEM_PORT="0")
    assert code == 0
    [route] = plan["system"]["routes"]
    assert route["path"] == "/engine/pause"
    assert route["method"] == "TokenizerManager.pause_generation"
    assert route["async"] is True and "mode" in route["fields"]


def test_a_route_to_nothing_is_an_error_that_names_it() -> None:
    plan, code = static("--engine-route", "x=no_such_method")
    assert code == 2 and plan["ok"] is False
    assert "x=no_such_method" in plan["errors"][0]


def test_the_model_level_reads_config_and_checks_loader_hooks_by_class(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    argv = ["--model-path", str(tmp_path), "--speculative-algorithm", "NEXTN"]
    plan, code = run_check(argv, {}, "model")
    assert code == 0, plan["errors"]
    assert plan["model_files"]["target"]["family"] == "gdn"
    parity = plan["loader_hook_parity"]
    assert parity["checked"] is True
    assert parity["drafts"] == ["Qwen3NextForCausalLMMTP"]


def test_the_program_prints_one_json_document() -> None:
    flags = ["--model-path", "org/model", "--engine-route", "flush_cache", "--check"]
    result = subprocess.run(
        [sys.executable, "-m", "dynamo.sglang", *flags],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["worker_type"] == "aggregated"
    assert plan["system"]["routes"][0]["method"] == "Engine.flush_cache"


MULTIMODAL = "--enable-multimodal"
INTERNAL = f"{MULTIMODAL} --dedicated-mm-encoder"
TYPES = {
    WorkerType.AGGREGATED: "",
    WorkerType.PREFILL: "--disaggregation-mode prefill",
    WorkerType.DECODE: "--disaggregation-mode decode",
    WorkerType.EMBEDDING: "--embedding-worker",
    WorkerType.MULTIMODAL_ENCODE: "--disaggregation-mode encode",
    WorkerType.NATIVE_MULTIMODAL: MULTIMODAL,
    WorkerType.NATIVE_MULTIMODAL_PREFILL: f"{MULTIMODAL} --disaggregation-mode prefill",
    WorkerType.NATIVE_MULTIMODAL_DECODE: f"{MULTIMODAL} --disaggregation-mode decode",
    WorkerType.INTERNAL_MULTIMODAL: f"{INTERNAL} --disaggregation-mode pd",
    WorkerType.INTERNAL_MULTIMODAL_PREFILL: f"{INTERNAL} --disaggregation-mode prefill",
    WorkerType.INTERNAL_MULTIMODAL_DECODE: f"{INTERNAL} --disaggregation-mode decode",
    WorkerType.IMAGE_DIFFUSION: "--image-diffusion-worker",
    WorkerType.VIDEO_GENERATION: "--video-generation-worker",
    WorkerType.LLM_DIFFUSION: "--dllm-algorithm LowConfidence",
}


@pytest.mark.parametrize("worker_type", WorkerType)
def test_every_worker_type_can_be_planned(worker_type: WorkerType) -> None:
    plan, code = static(*TYPES[worker_type].split())
    assert code == 0, plan["errors"]
    assert plan["worker_type"] == worker_type.value
