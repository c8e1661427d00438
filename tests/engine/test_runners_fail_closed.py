"""Each check, provoked by a real fault inside the schedulers of a real engine."""

from __future__ import annotations

import pytest
from sglang_worker.runners.guard import STANDALONE_SENTENCE

from tests.engine.runners_fixture import CHAIN, Lab

pytestmark = pytest.mark.engine


def test_schedulers_that_report_nothing_stop_startup(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", plain_entry=True)
    assert "rank 0 handed over no runner report" in (engine.refusal() or "")
    assert engine.reports(strict=False) == []


def test_a_runner_that_cannot_be_read_stops_startup(runner_lab: Lab) -> None:
    refusal = runner_lab("gdn", twist="break_collecting").refusal() or ""
    assert "rank 0: the report could not be collected" in refusal


def test_hooks_that_did_not_apply_stop_startup_by_name(runner_lab: Lab) -> None:
    why = runner_lab("gdn", twist="keep_hooks_from_applying").failed_start() or ""
    assert "hooks did not apply to" in why
    assert "attn_backend_wrapper" in why
    assert "get_init_info" in why


def test_a_gdn_runner_without_a_stamp_stops_startup_and_without_strictness_says_so(
    runner_lab: Lab,
) -> None:
    engine = runner_lab("gdn", twist="remove_the_stamp")
    refusal = engine.refusal() or ""
    assert "runner target, rank 0: GDNAttnBackend was built, yet field stamp is missing" in refusal
    (target,) = engine.reports(strict=False)
    assert target["stamp"] is None
    assert target["report_valid"] is False
    assert len(engine.generate(10)) == 4


def test_sglangs_own_constructor_refuses_an_unstamped_runner(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", twist="never_stamp")
    assert engine.failed_start() is not None
    assert "has no attribute 'linear_attn_backends'" in engine.log.read_text()


def test_ranks_that_built_different_kernels_stop_startup(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", twist="swap_a_kernel_on_rank_one", tp_size=2)
    refusal = engine.refusal() or ""
    assert "runner target: ranks disagree on kernels" in refusal
    assert "rank 1 has" in refusal
    reports = engine.reports(strict=False)
    assert [(r["ranks"], r["report_valid"]) for r in reports] == [([0], False), ([1], False)]


def test_a_loader_hook_on_the_launched_draft_alone_stops_startup(runner_lab: Lab) -> None:
    engine = runner_lab(
        "gdn", twist="give_the_draft_a_loader_hook", speculative_algorithm="NEXTN", **CHAIN
    )
    refusal = engine.refusal() or ""
    assert "runner draft, rank 0: loader hook shared_experts_fusion_disable_reason" in refusal
    assert "Qwen3NextForCausalLMMTP has it, Qwen3NextForCausalLM lacks it" in refusal


def test_equal_loader_questions_with_different_decisions_stop_startup(runner_lab: Lab) -> None:
    engine = runner_lab(
        "gdn", twist="decide_fusion_differently", speculative_algorithm="NEXTN", **CHAIN
    )
    refusal = engine.refusal() or ""
    assert "shared-experts fusion is decided differently" in refusal
    assert "this draft does not fuse." in refusal


def test_a_linear_attention_standalone_draft_is_refused_with_the_sentence(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", draft="kda", speculative_algorithm="STANDALONE", **CHAIN)
    why = engine.failed_start() or ""
    assert "(kda)" in why
    assert STANDALONE_SENTENCE in why


def test_a_kernel_that_changes_while_serving_fails_health(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", twist="swap_a_kernel_after_startup")
    (target,) = engine.reports()
    assert target["kernels"]["decode"] == "ReferenceGDNKernel"
    changes, healthy = engine.later_changes()
    assert healthy is False
    assert any("target, rank 0: kernels was" in change for change in changes)
