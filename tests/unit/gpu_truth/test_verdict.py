"""Judging recorded kernels; names as the H200 recorded them (benchmarks/results)."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.gpu_truth import condense, device_kernels, markdown, rows, verdict

FLASHINFER_PREFILL = (
    "kernel_cutlass_kernel_flashinfergdn_kernelsdelta_rule_dsldelta_rule_cp_sm90"
    "CPDeltaRulePrefillSm90_object_at__tensorptrf32"
)
FLASHINFER_DECODE = "kernel_cutlass_gdn_decode_kernel_small_batch_pretranspose_TiledCopy_Tiler"
FLASHINFER_VERIFY = "kernel_cutlass_gdn_verify_kernel_mtp_inline_tensorptrf32gmemalign16"
CUTEDSL_DECODE = "kernel_cutlass_gdn_kernel_small_batch_TiledCopy_TilerMN128141"
TRITON_PREFILL = "chunk_gated_delta_rule_fwd_kernel_h_blockdim64"
TRITON_DECODE = "fused_recurrent_gated_delta_rule_packed_decode_kernel"
TRITON_VERIFY = "fused_sigmoid_gating_delta_rule_update_kernel"
OTHER = "nvjet_tst_64x8_64x16_4x1_v_bz_TNT"


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        (FLASHINFER_PREFILL, "flashinfer"),
        (FLASHINFER_DECODE, "flashinfer"),
        (FLASHINFER_VERIFY, "flashinfer"),
        (CUTEDSL_DECODE, "cutedsl"),
        (TRITON_PREFILL, "triton"),
        (TRITON_DECODE, "triton"),
        (TRITON_VERIFY, "triton"),
        (OTHER, None),
        ("fused_gdn_gating_kernel", None),
    ],
)
def test_a_device_kernel_is_known_by_its_name(name: str, backend: str | None) -> None:
    assert device_kernels.backend_of(name) == backend


def test_a_name_that_sounds_like_linear_attention_is_left_to_the_reader() -> None:
    assert device_kernels.suspects_of(["new_delta_rule_step", OTHER, TRITON_DECODE]) == [
        "new_delta_rule_step"
    ]


def result(
    prefill: str, *, recorded: str, kernels: str = "", stage: str = "done"
) -> dict[str, Any]:
    report = {
        "runner": "target",
        "stamp": {"decode": "triton", "prefill": "flashinfer", "verify": "triton"},
        "kernels": dict.fromkeys(("decode", "verify"), "TritonGDNKernel") | {"prefill": prefill},
    }
    profile = {"kernels": {"target.EXTEND": {recorded: 12, OTHER: 3}}}
    return {"row": "plain.none", "stage": stage, "report": [report], "profile": profile}


def test_a_report_agrees_when_the_device_ran_what_it_names() -> None:
    judged = verdict.judge(result("FlashInferGDNKernel", recorded=FLASHINFER_PREFILL))
    assert judged["agrees"]
    assert judged["phases"]["prefill"]["verdict"] == "agrees"
    assert judged["phases"]["decode"]["verdict"] == "not exercised"


def test_a_report_disagrees_when_the_device_ran_something_else() -> None:
    judged = verdict.judge(result("FlashInferGDNKernel", recorded=TRITON_PREFILL))
    assert not judged["agrees"]
    assert judged["phases"]["prefill"]["verdict"] == "DISAGREES"
    assert "DISAGREE" in markdown.render([result("FlashInferGDNKernel", recorded=TRITON_PREFILL)])


def test_a_phase_without_a_known_kernel_is_not_called_agreement() -> None:
    judged = verdict.judge(result("FlashInferGDNKernel", recorded=OTHER))
    assert not judged["agrees"]
    assert judged["phases"]["prefill"]["verdict"] == "no known kernel recorded"


def test_a_row_that_did_not_start_says_why() -> None:
    failed = {"row": "plain.none", "error": "RuntimeError: no memory", "log_tail": "x"}
    judged = verdict.judge(failed)
    assert not judged["ran"]
    assert "no memory" in judged["why"]
    assert "did not run: RuntimeError: no memory" in markdown.render([failed])


def test_condensing_keeps_the_telling_names_and_the_verdict() -> None:
    raw = result("FlashInferGDNKernel", recorded=FLASHINFER_PREFILL)
    small = condense.condense(raw)
    kept = small["profile"]["kernels"]["target.EXTEND"]
    assert kept == {FLASHINFER_PREFILL[:140]: 12, "(other kernels)": 3}
    assert verdict.judge(small) == verdict.judge(raw)


def test_the_table_has_eighteen_rows() -> None:
    names = [row.name for row in rows.rows(list(rows.DRAFTS))]
    assert len(names) == len(set(names)) == 18
    assert rows.row_named("nextn.base-cutedsl").options["speculative_algorithm"] == "NEXTN"
