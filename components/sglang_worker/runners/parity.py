"""Loader-hook parity: a draft class answers the loader's questions exactly when its target does.

SGLang's loader asks the entry class of a model about shared-experts fusion. A draft class that
lacks the hook of its target family gets another decision and loads its weights in the wrong
layout. Presence is compared, not implementation. Pure, but for `registry`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from sglang_worker.runners.fusion import LOADER_HOOKS, LoaderAnswers, hooks_of
from sglang_worker.runners.records import RankRecord, RunnerRecord

# Classes that mirror a stage of their target. ...Eagle names independent checkpoints: not here.
DRAFT_SUFFIX = re.compile(r"(NextN|MTP|DSpark|DFlash|Standalone)$")


class Exemption(msgspec.Struct, frozen=True):
    """A pair that was looked at and may differ in `hook`."""

    draft: str
    target: str
    hook: str
    reason: str


_BAILING = (
    "SGLang renames every Bailing draft to this one class, whose hooks answer 'nothing to fuse' "
    "for all but Ling-V3 drafts, whose real target BailingMoeV3ForCausalLM has both hooks"
)
REVIEWED = tuple(
    Exemption("BailingMoeForCausalLMNextN", "BailingMoeForCausalLM", hook, _BAILING)
    for hook in LOADER_HOOKS
)


class Finding(msgspec.Struct, frozen=True):
    """A hook that one class of a pair has and the other lacks."""

    draft: str
    target: str
    hook: str
    on_draft: bool
    exempted: str | None = None

    @property
    def sentence(self) -> str:
        has, lacks = (self.draft, self.target) if self.on_draft else (self.target, self.draft)
        return (
            f"loader hook {self.hook}: {has} has it, {lacks} lacks it, so draft and target may "
            "lay out their experts differently"
        )


class Pair(msgspec.Struct, frozen=True):
    draft: str
    target: str


def registry() -> Mapping[str, type]:
    """SGLang's architectures and their classes; imports every model module (seconds)."""
    from sglang.srt.models.registry import ModelRegistry

    models: Mapping[str, type] = ModelRegistry.models
    return models


def target_of(draft: str, architectures: Iterable[str]) -> str | None:
    """The target that a draft class serves by its name, or None when it names none."""
    match = DRAFT_SUFFIX.search(draft)
    if match is None:
        return None
    known = frozenset(architectures)
    base = draft[: match.start()]
    return next((name for name in (base, f"{base}ForCausalLM") if name in known), None)


def pairs(architectures: Iterable[str]) -> tuple[Pair, ...]:
    known = sorted(architectures)
    found = ((draft, target_of(draft, known)) for draft in known)
    return tuple(Pair(draft, target) for draft, target in found if target is not None)


def compare_classes(draft: type, target: type) -> tuple[Finding, ...]:
    return compare_hooks(draft.__name__, hooks_of(draft), target.__name__, hooks_of(target))


def compare_hooks(
    draft: str, draft_hooks: Iterable[str], target: str, target_hooks: Iterable[str]
) -> tuple[Finding, ...]:
    one_sided = frozenset(draft_hooks) ^ frozenset(target_hooks)
    return tuple(
        Finding(draft, target, hook, hook in draft_hooks, _exemption(draft, target, hook))
        for hook in LOADER_HOOKS
        if hook in one_sided
    )


def audit(models: Mapping[str, type]) -> tuple[Finding, ...]:
    """Every one-sided hook of every pair in a registry, exempted ones marked."""
    return tuple(
        finding
        for pair in pairs(models)
        for finding in compare_classes(models[pair.draft], models[pair.target])
    )


def stale_exemptions(models: Mapping[str, type]) -> tuple[Exemption, ...]:
    """Reviewed entries that no longer describe anything: the pair is gone, or is fine now."""
    found = {(f.draft, f.target, f.hook) for f in audit(models)}
    return tuple(e for e in REVIEWED if (e.draft, e.target, e.hook) not in found)


def _exemption(draft: str, target: str, hook: str) -> str | None:
    for exemption in REVIEWED:
        if (exemption.draft, exemption.target, exemption.hook) == (draft, target, hook):
            return exemption.reason
    return None


class PairVerdict(msgspec.Struct, frozen=True):
    """What the launched pair's check found: errors stop startup, warnings are logged."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check_launched(record: RankRecord) -> PairVerdict:
    """The launched target against each launched draft that mirrors a stage of a target.

    Independent drafts (dense STANDALONE, Eagle heads) have layouts of their own: not compared.
    """
    target = next((r for r in record.runners if not r.is_draft), None)
    errors: list[str] = []
    warnings: list[str] = []
    for draft in record.runners:
        if target is None or not draft.is_draft or DRAFT_SUFFIX.search(draft.loader.model) is None:
            continue
        where = f"runner {draft.report.runner}, rank {record.identity.rank}: "
        for finding in compare_hooks(
            draft.loader.model, draft.loader.hooks, target.loader.model, target.loader.hooks
        ):
            exempted = finding.exempted
            if exempted is None:
                errors.append(where + finding.sentence)
            else:
                warnings.append(f"{where}{finding.sentence}; reviewed exception: {exempted}")
        complaint = _decisions(target, draft)
        if complaint is not None:
            (errors if _comparable(target, draft) else warnings).append(where + complaint)
    return PairVerdict(tuple(errors), tuple(warnings))


def _decisions(target: RunnerRecord, draft: RunnerRecord) -> str | None:
    ours, theirs = draft.loader, target.loader
    if _both_asked(ours, theirs) and _fused(draft) != _fused(target):
        return (
            "shared-experts fusion is decided differently: "
            f"draft {ours.model} {_fused(draft)} ({draft.report.shared_experts_fusion.reason}), "
            f"target {theirs.model} {_fused(target)} "
            f"({target.report.shared_experts_fusion.reason})"
        )
    return None


def _both_asked(ours: LoaderAnswers, theirs: LoaderAnswers) -> bool:
    return bool(ours.hooks) and bool(theirs.hooks)


def _fused(runner: RunnerRecord) -> bool | None:
    return runner.report.shared_experts_fusion.enabled


def _comparable(target: RunnerRecord, draft: RunnerRecord) -> bool:
    """Same quantization and same fusable count: then nothing explains another decision."""
    return (
        target.quantization == draft.quantization and target.loader.fusable == draft.loader.fusable
    )
