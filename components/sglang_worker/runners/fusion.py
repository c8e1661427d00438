"""The resolved shared-experts-fusion decision of one runner, with its reason.

SGLang's loader asks a model class two questions before it builds: why fusion must stay off
(`shared_experts_fusion_disable_reason`) and how many experts could be fused
(`num_fusable_shared_experts`). The answers steer how weights are laid out.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sglang_worker.runners.report import FusionDecision

GATE = "shared_experts_fusion_disable_reason"
COUNT = "num_fusable_shared_experts"
LOADER_HOOKS = (GATE, COUNT)


class LoaderAnswers(msgspec.Struct, frozen=True):
    """What the loader asked one model class and was told."""

    model: str
    hooks: tuple[str, ...] = ()
    switched_off: bool = False
    disable_reason: str | None = None
    fusable: int | None = None
    fused: int | None = None


def hooks_of(model_class: type) -> tuple[str, ...]:
    return tuple(name for name in LOADER_HOOKS if hasattr(model_class, name))


def ask(
    model_class: type, hf_config: Any, quant_config: Any, *, switched_off: bool, fused: int | None
) -> LoaderAnswers:
    """Puts the loader's questions again; `switched_off` is the process-wide setting."""
    gate = getattr(model_class, GATE, None)
    count = getattr(model_class, COUNT, None)
    reason = gate(hf_config, quant_config) if gate is not None and not switched_off else None
    return LoaderAnswers(
        model=model_class.__name__,
        hooks=hooks_of(model_class),
        switched_off=switched_off,
        disable_reason=reason or None,
        fusable=count(hf_config) if count is not None else None,
        fused=fused,
    )


def decision(answers: LoaderAnswers) -> FusionDecision:
    """The decision in force, in words."""
    if answers.switched_off:
        return FusionDecision(False, "disabled by --disable-shared-experts-fusion or its resolver")
    if answers.disable_reason is not None:
        return FusionDecision(False, answers.disable_reason)
    if GATE not in answers.hooks:
        return FusionDecision(False, "the model class does not offer shared-experts fusion")
    if answers.fused is None:
        return FusionDecision(None, "this SGLang does not say how many experts it fused")
    if answers.fused == 0:
        return FusionDecision(False, "the model has no shared experts to fuse")
    return FusionDecision(True, f"{answers.fused} shared experts fused")
