"""What the report says about real engines, one start per combination."""

from __future__ import annotations

import pytest

from tests.engine.runners_fixture import CHAIN, Lab

pytestmark = pytest.mark.engine

TRITON = {"decode": "triton", "prefill": "triton", "verify": "triton"}
BASE = {"decode": "base", "prefill": "base", "verify": "rule"}
REFERENCE = dict.fromkeys(("decode", "prefill", "verify", "tree_verify"), "ReferenceGDNKernel")


def test_a_gdn_target_shows_its_stamp_and_the_platforms_kernels(runner_lab: Lab) -> None:
    engine = runner_lab("gdn")
    (target,) = engine.reports()
    assert target["runner"] == "target"
    assert target["model"] == "Qwen3NextForCausalLM"
    assert target["family"] == "gdn"
    assert target["attention_backend"] == {"decode": "triton", "prefill": "triton"}
    assert target["stamp"] == TRITON
    assert target["source"] == BASE
    assert target["kernels"] == REFERENCE
    assert target["agrees"] is False
    assert {d["reason"] for d in target["differences"]} == {"reference_platform"}
    assert target["report_valid"] is True
    assert target["ranks"] == [0]

    # The same list everywhere: server info, and each internal state.
    info = engine.server_info()
    assert info["linear_attn_runners"] == [target]
    assert [s["linear_attn_runners"] for s in info["internal_states"]] == [[target]]
    engine.generate(20)
    assert engine.later_changes() == ([], True)


def test_an_mtp_draft_is_never_shown_with_the_targets_kernels(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", speculative_algorithm="NEXTN", **CHAIN)
    target, draft = engine.reports()
    assert target["kernels"] == REFERENCE
    assert draft["runner"] == "draft"
    assert draft["model"] == "Qwen3NextForCausalLMMTP"
    assert draft["family"] == "gdn"
    assert draft["stamp"] == TRITON
    assert draft["kernels"] is None
    assert draft["agrees"] is None
    assert [d["reason"] for d in draft["differences"]] == ["no_backend"]
    assert draft["attention_backend"] == {"decode": "triton", "prefill": "triton"}
    assert len(engine.generate(20, 8)) == 8


def test_a_dense_draft_has_no_stamp_at_all(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", draft="dense", speculative_algorithm="STANDALONE", **CHAIN)
    target, draft = engine.reports()
    assert target["stamp"] == TRITON
    assert draft["model"] != target["model"]
    assert draft["family"] is None
    assert draft["stamp"] is None
    assert draft["source"] is None
    assert draft["kernels"] is None
    assert draft["differences"] == []


def test_flags_are_the_operators_and_reach_the_process_configuration(runner_lab: Lab) -> None:
    engine = runner_lab(
        "gdn",
        start_method="spawn",
        linear_attn_decode_backend="triton",
        linear_attn_verify_backend="triton",
    )
    (target,) = engine.reports()
    assert target["source"] == {"decode": "flag", "prefill": "base", "verify": "flag"}
    info = engine.server_info()
    assert info["linear_attn_decode_backend"] == "triton"
    assert info["linear_attn_prefill_backend"] is None


def test_a_kda_target_shows_three_phases(runner_lab: Lab) -> None:
    (target,) = runner_lab("kda").reports()
    assert target["family"] == "kda"
    assert target["kernels"] == dict.fromkeys(("decode", "prefill", "verify"), "ReferenceKDAKernel")


def test_tree_drafts_make_tree_verification_count(runner_lab: Lab) -> None:
    engine = runner_lab(
        "gdn",
        speculative_algorithm="NEXTN",
        speculative_num_steps=2,
        speculative_eagle_topk=2,
        speculative_num_draft_tokens=4,
    )
    target, _ = engine.reports()
    assert [d["phase"] for d in target["differences"]] == [
        "decode",
        "prefill",
        "verify",
        "tree_verify",
    ]


def test_every_tensor_parallel_rank_reports(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", tp_size=2)
    (target,) = engine.reports()
    assert target["ranks"] == [0, 1]
    assert set(engine.ranks_in_folder()) == {0, 1}


def test_every_data_parallel_replica_reports(runner_lab: Lab) -> None:
    engine = runner_lab("gdn", dp_size=2)
    (target,) = engine.reports()
    assert target["ranks"] == [0, 1]
    states = engine.server_info()["internal_states"]
    assert sorted(s["linear_attn_runners"][0]["ranks"] for s in states) == [[0], [1]]
    assert engine.later_changes() == ([], True)
