"""Defaults, refusals, number types and start method of the platform."""

from __future__ import annotations

import json
import os
import types
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.reference_platform import defaults
from sglang_worker.reference_platform.refusals import LIMITS, refusals
from sglang_worker.reference_platform.start import choose_start_method, thread_count


def test_a_users_value_is_never_overridden() -> None:
    chosen = {"max_total_tokens": 100, "mem_fraction_static": 0.9}
    found = defaults.engine_defaults(chosen)
    assert not set(found) & set(chosen)
    assert found["device"] == "cpu"
    assert found["attention_backend"] == "triton"


def test_only_unset_fields_of_a_foreign_engine_are_filled() -> None:
    fields: dict[str, Any] = dict.fromkeys(defaults.ENGINE_DEFAULTS)
    arguments = types.SimpleNamespace(
        **{
            **fields,
            "max_total_tokens": 7,
            "attention_backend": "intel_amx",
            "dtype": "auto",
            "model_path": "/nowhere",
        }
    )
    defaults.fill_unset(arguments)
    assert arguments.max_total_tokens == 7
    assert arguments.attention_backend == "triton"
    assert arguments.dtype == "auto"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"dtype": "float32"}, "float32"),
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"text_config": {"dtype": "float32"}}, "float32"),
        ({}, "auto"),
    ],
)
def test_the_checkpoints_own_number_type_is_served(
    tmp_path: Path, config: dict[str, Any], expected: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    arguments = types.SimpleNamespace(dtype="auto", model_path=str(tmp_path))
    defaults.fill_unset(arguments)
    assert arguments.dtype == expected


@pytest.mark.parametrize(
    "explicit",
    [
        {"attention_backend": "fa3"},
        {"attention_backend": "flashinfer"},
        {"linear_attn_decode_backend": "cutedsl"},
        {"linear_attn_prefill_backend": "flashinfer"},
        {"quantization": "fp8"},
        {"kv_cache_dtype": "fp8_e4m3"},
        {"device": "cuda"},
        {"cuda_graph_backend_decode": "full"},
        {"enable_torch_compile": True},
        {"speculative_algorithm": "DFLASH"},
        {"sampling_backend": "flashinfer"},
        {"dcp_size": 2},
    ],
)
def test_what_cannot_run_is_refused_by_flag_and_value(explicit: dict[str, Any]) -> None:
    (sentence,) = refusals(explicit)
    ((field, value),) = explicit.items()
    assert "--" + field.replace("_", "-") in sentence
    assert str(value) in sentence


def test_everything_that_the_demo_uses_is_accepted() -> None:
    assert (
        refusals(
            {
                "device": "cpu",
                "attention_backend": "triton",
                "linear_attn_backend": "triton",
                "speculative_algorithm": "NEXTN",
                "speculative_eagle_topk": 2,
                "cuda_graph_backend_decode": "disabled",
                "enable_torch_compile": False,
                "kv_cache_dtype": "auto",
                "lora_backend": "torch_native",
            }
        )
        == []
    )


def test_the_platforms_own_defaults_are_never_refused() -> None:
    assert refusals(defaults.engine_defaults({})) == []


def test_a_standalone_draft_with_linear_attention_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"linear_num_value_heads": 4}))
    explicit = {
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": str(tmp_path),
    }
    (sentence,) = refusals(explicit)
    assert "linear attention" in sentence
    (tmp_path / "config.json").write_text(json.dumps({"hidden_size": 4}))
    assert refusals(explicit) == []


def test_tree_drafts_need_page_size_one() -> None:
    (sentence,) = refusals({"page_size": 16, "speculative_eagle_topk": 2})
    assert "--page-size" in sentence


def test_no_limit_is_listed_twice() -> None:
    fields = [limit.field for limit in LIMITS]
    assert len(fields) == len(set(fields))


def test_fork_is_used_only_without_threads_and_without_data_parallelism() -> None:
    assert choose_start_method(dp_size=1, threads=1) == "fork"
    assert choose_start_method(dp_size=1, threads=2) == "spawn"
    assert choose_start_method(dp_size=2, threads=1) == "spawn"


def test_native_threads_are_counted() -> None:
    assert thread_count() == len(os.listdir("/proc/self/task"))
