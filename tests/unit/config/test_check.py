"""``--check`` prints the plan, starts nothing, and says what it cannot know."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.config.check import run_check
from sglang_worker.config.command import check_level, handle_early

SECRET = "open-sesame-2"
QWEN = {"architectures": ["Qwen3NextForCausalLM"]}


def static(*flags: str, **variables: str) -> tuple[dict[str, Any], int]:
    return run_check(["--model-path", "org/model", *flags], variables, "static")


@pytest.mark.parametrize(
    ("argv", "level"),
    [
        (["--model-path", "x"], None),
        (["--check"], "static"),
        (["--check", "--tp", "2"], "static"),
        (["--check=static"], "static"),
        (["--check=model"], "model"),
        (["--check", "model"], "model"),
        (["--check=deep"], "static"),
    ],
)
def test_the_level_is_read_before_anything_is_parsed(argv: list[str], level: str | None) -> None:
    assert check_level(argv) == level


def test_a_good_plan_says_what_would_run() -> None:
    plan, code = static("--served-model-name", "m", "--api-key", SECRET, DYN_SYSTEM_PORT="8081")
    assert code == 0 and plan["ok"] is True and plan["errors"] == []
    assert plan["worker_type"] == "aggregated"
    assert plan["endpoint"] == "dyn://dynamo.backend.generate"
    assert plan["system"]["port"] == 8081
    assert SECRET not in json.dumps(plan)


def test_what_cannot_be_known_is_unknown_with_a_reason() -> None:
    plan, _ = static(DYN_SYSTEM_PORT="0")
    for entry in (
        plan["model"]["kv_block_size"],
        plan["linear_attention"]["prefill"],
        plan["system"]["port"],
        plan["model_files"],
        plan["loader_hook_parity"],
        plan["reference_platform"]["active"],
    ):
        assert entry["value"] == "unknown" and entry["reason"]


def test_flags_fix_the_phases_that_they_name() -> None:
    plan, _ = static("--linear-attn-decode-backend", "flashinfer")
    phases = plan["linear_attention"]
    assert (phases["decode"], phases["verify"]) == ("flashinfer", "flashinfer")
    plan, _ = static("--linear-attn-backend", "cutedsl")
    assert plan["linear_attention"] == {
        "decode": "cutedsl",
        "prefill": "cutedsl",
        "verify": "triton",
    }


def test_a_bad_flag_is_the_plans_error() -> None:
    plan, code = static("--request-plane", "http")
    assert code == 2 and "--request-plane" in plan["errors"][0]


def test_refusals_of_the_platform_are_not_applied() -> None:
    plan, code = static("--device", "cuda", DYN_SGL_REFERENCE_PLATFORM="on")
    assert code == 0 and plan["reference_platform"]["active"] is True


def test_the_model_level_says_why_parity_was_not_checked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN))
    plan, _ = run_check(["--model-path", str(tmp_path)], {}, "model")
    assert plan["loader_hook_parity"] == {"checked": False, "reason": "no speculative decoding"}
    plan, _ = run_check(
        ["--model-path", "org/model", "--speculative-algorithm", "NEXTN"], {}, "model"
    )
    assert "not a local folder" in plan["loader_hook_parity"]["reason"]


def test_the_plan_is_json_on_standard_output_and_the_error_one_line_on_the_other() -> None:
    out, err = io.StringIO(), io.StringIO()
    argv = ["--model-path", "org/model", "--check", "--shutdown-timeout", "soon"]
    assert handle_early(argv, {}, out, err) == 2
    assert json.loads(out.getvalue())["ok"] is False
    assert err.getvalue().count("\n") == 1 and "--shutdown-timeout" in err.getvalue()


def test_version_is_one_line() -> None:
    out = io.StringIO()
    assert handle_early(["--version"], {}, out) == 0
    assert out.getvalue().startswith("sglang-worker ") and "sglang 0." in out.getvalue()


def test_help_shows_our_flags_first_then_dynamos_then_sglangs() -> None:
    out = io.StringIO()
    assert handle_early(["--help"], {}, out) == 0
    text = out.getvalue()
    order = ["  --engine-route", "  --check[", "Dynamo flags", "--namespace", "SGLang engine flags"]
    places = [text.index(word) for word in [*order, "--tp-size"]]
    assert places == sorted(places)


def test_a_reader_that_stops_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as out:
        assert handle_early(["--help"], {}, out) == 0


def test_without_such_flags_the_worker_starts() -> None:
    assert handle_early(["--model-path", "x"], {}) is None
