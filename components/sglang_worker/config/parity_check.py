"""Loader-hook parity by class for ``--check=model``; `runners.parity` owns the rule itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sglang_worker.config.model_facts import ModelFacts, Unknown
from sglang_worker.config.model_rules import ModelPair
from sglang_worker.errors import ConfigError

# Drafts of these algorithms mirror a stage of their target; others have layouts of their own.
MIRRORING = frozenset({"NEXTN", "EAGLE", "EAGLE3", "DFLASH", "DSPARK"})


class Finding(Protocol):
    """One hook that only one class of a pair has (`runners.parity.Finding`)."""

    @property
    def draft(self) -> str: ...
    @property
    def hook(self) -> str: ...
    @property
    def exempted(self) -> str | None: ...
    @property
    def sentence(self) -> str: ...


def check_parity(pair: ModelPair, explicit: Mapping[str, Any]) -> dict[str, Any]:
    """The plan's entry; raises ConfigError when a hook is on one side only."""
    algorithm = str(explicit.get("speculative_algorithm") or "").upper()
    if not algorithm:
        return {"checked": False, "reason": "no speculative decoding"}
    if algorithm not in MIRRORING:
        return {"checked": False, "reason": f"a {algorithm} draft is an independent model"}
    if isinstance(pair.target, Unknown):
        return {"checked": False, "reason": pair.target.reason}
    from sglang_worker.runners import parity

    models = parity.registry()
    drafts = draft_classes(pair, models)
    if not drafts:
        return {"checked": False, "reason": "SGLang registers no draft class for this target"}
    target = next(name for name in pair.target.architectures if name in models)
    findings: list[Finding] = [
        finding
        for draft in drafts
        for finding in parity.compare_classes(models[draft], models[target])
    ]
    broken = [finding.sentence for finding in findings if finding.exempted is None]
    if broken:
        raise ConfigError("; ".join(broken))
    return {
        "checked": True,
        "target": target,
        "drafts": drafts,
        "exempted": [f"{f.draft}.{f.hook}: {f.exempted}" for f in findings if f.exempted],
    }


def draft_classes(pair: ModelPair, models: Mapping[str, type]) -> list[str]:
    """Registered classes that can serve as this target's draft: named, or derived by its name."""
    from sglang_worker.runners import parity

    if isinstance(pair.target, Unknown):
        return []
    targets = [name for name in pair.target.architectures if name in models]
    named = pair.draft.architectures if isinstance(pair.draft, ModelFacts) else ()
    own = [name for name in named if name in models and parity.target_of(name, models) in targets]
    return own or [p.draft for p in parity.pairs(models) if p.target in targets]
