from __future__ import annotations

import pytest
from sglang_worker.runners import fusion, parity
from sglang_worker.runners.fusion import COUNT, GATE


def with_hooks(name: str, *hooks: str) -> type:
    return type(name, (), dict.fromkeys(hooks, lambda *_: None))


@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ("XForCausalLMNextN", "XForCausalLM"),
        ("XForCausalLMMTP", "XForCausalLM"),
        ("XMTP", "XForCausalLM"),
        ("XForCausalLMDSpark", "XForCausalLM"),
        ("XForCausalLMDFlash", "XForCausalLM"),
        ("XStandalone", "XForCausalLM"),
        ("XForCausalLMEagle", None),
        ("XForCausalLM", None),
        ("YMTP", None),
    ],
)
def test_a_draft_finds_its_target_by_its_name(draft: str, target: str | None) -> None:
    assert parity.target_of(draft, ["XForCausalLM", "XForCausalLMEagle", draft]) == target


def test_presence_is_compared_and_not_the_implementation() -> None:
    models = {
        "XForCausalLM": with_hooks("XForCausalLM", GATE),
        "XForCausalLMMTP": with_hooks("XForCausalLMMTP", GATE),
    }
    assert parity.audit(models) == ()


def test_a_hook_on_one_side_is_found_for_each_hook() -> None:
    models = {
        "XForCausalLM": with_hooks("XForCausalLM", GATE, COUNT),
        "XForCausalLMMTP": with_hooks("XForCausalLMMTP", GATE),
    }
    (finding,) = parity.audit(models)
    assert (finding.hook, finding.on_draft) == (COUNT, False)
    assert "XForCausalLM has it, XForCausalLMMTP lacks it" in finding.sentence


def test_every_reviewed_exception_carries_a_reason() -> None:
    assert all(len(exemption.reason) > 40 for exemption in parity.REVIEWED)


def test_an_exception_whose_pair_is_gone_or_fine_is_stale() -> None:
    entry = parity.REVIEWED[0]
    fine = {entry.draft: with_hooks(entry.draft), entry.target: with_hooks(entry.target)}
    assert entry in parity.stale_exemptions({})
    assert entry in parity.stale_exemptions(fine)
    broken = {**fine, entry.draft: with_hooks(entry.draft, GATE, COUNT)}
    assert parity.stale_exemptions(broken) == ()


class Fusing:
    @classmethod
    def shared_experts_fusion_disable_reason(cls, config: str, quant: str | None) -> str | None:
        return "int4 experts differ." if quant == "int4" else None

    @classmethod
    def num_fusable_shared_experts(cls, config: str) -> int:
        return 1


def answers(quant: str | None = None, *, off: bool = False, fused: int | None = 1):
    return fusion.ask(Fusing, "config", quant, switched_off=off, fused=fused)


def test_a_fusing_model_says_how_many_experts_it_fused() -> None:
    decided = fusion.decision(answers())
    assert decided.enabled is True
    assert "1 shared experts" in decided.reason


def test_the_models_own_reason_is_passed_on() -> None:
    decided = fusion.decision(answers("int4", fused=0))
    assert (decided.enabled, decided.reason) == (False, "int4 experts differ.")


def test_the_process_wide_switch_comes_first() -> None:
    decided = fusion.decision(answers("int4", off=True, fused=0))
    assert decided.enabled is False
    assert "--disable-shared-experts-fusion" in decided.reason


def test_a_model_without_hooks_cannot_fuse() -> None:
    asked = fusion.ask(object, "config", None, switched_off=False, fused=0)
    assert fusion.decision(asked).enabled is False


def test_an_sglang_that_keeps_no_count_leaves_the_decision_open() -> None:
    assert fusion.decision(answers(fused=None)).enabled is None
