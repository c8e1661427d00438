"""Builds one rank's record from its scheduler: compat reads, the pure modules judge."""

from __future__ import annotations

import weakref
from typing import Any

from sglang_worker.runners import agreement, compat, fusion, sources
from sglang_worker.runners.families import Family
from sglang_worker.runners.records import RankIdentity, RankRecord, RunnerRecord
from sglang_worker.runners.report import RunnerReport


class Notes:
    """What hooks saw while runners were built and cannot be read back from them afterwards."""

    def __init__(self) -> None:
        self._prefill_defaults: weakref.WeakKeyDictionary[Any, str | None] = (
            weakref.WeakKeyDictionary()
        )
        self._answers: list[tuple[Any, fusion.LoaderAnswers]] = []
        self.errors: list[str] = []

    def note_prefill_default(self, runner: Any, default: str | None) -> None:
        self._prefill_defaults[runner] = default

    def prefill_default(self, runner: Any) -> str | None:
        return self._prefill_defaults.get(runner)

    def note_answers(self, decision: Any, answers: fusion.LoaderAnswers) -> None:
        """`decision` is the loader's own result object; the model keeps that very object."""
        self._answers.append((decision, answers))

    def answers(self, decision: Any) -> fusion.LoaderAnswers | None:
        for noted, answers in self._answers:
            if noted is decision:
                return answers
        return None


def observe_rank(scheduler: Any, identity: RankIdentity, notes: Notes) -> RankRecord:
    """Everything that this rank knows about its runners, now."""
    runners = tuple(
        observe_runner(name, runner, scheduler.server_args, identity.rank, notes)
        for name, runner in compat.named_runners(scheduler)
    )
    return RankRecord(identity=identity, runners=runners, errors=tuple(notes.errors))


def observe_runner(
    name: str, runner: Any, server_args: Any, rank: int, notes: Notes
) -> RunnerRecord:
    backend = compat.linear_backend(runner)
    family = _family(runner, backend)
    stamp = compat.read_stamp(runner)
    kernels = None if backend is None else compat.kernels_of(runner, backend)
    verdict = agreement.compare(
        family, stamp, kernels, tree_drafts=kernels is not None and compat.drafts_are_trees(runner)
    )
    answers = _loader_answers(runner, notes)
    report = RunnerReport(
        runner=name,
        model=answers.model,
        family=None if family is None else family.value,
        attention_backend=compat.attention_pair(runner),
        stamp=stamp,
        source=None if stamp is None else _sources(runner, server_args, notes),
        kernels=None if kernels is None else {k: v.name for k, v in kernels.items()},
        agrees=verdict.agrees,
        differences=verdict.differences,
        shared_experts_fusion=fusion.decision(answers),
        report_valid=True,
        ranks=(rank,),
    )
    return RunnerRecord(
        report=report,
        loader=answers,
        quantization=compat.model_facts(runner)["quantization"],
        linear_backend=None if backend is None else type(backend).__name__,
        is_draft=name != "target",
    )


def _family(runner: Any, backend: Any) -> Family | None:
    if backend is not None:
        return compat.backend_family(backend)
    return compat.config_family(runner.model_config)


def _sources(runner: Any, server_args: Any, notes: Notes) -> Any:
    return sources.resolve_sources(
        compat.typed_leaves(server_args),
        compat.published_leaves(),
        notes.prefill_default(runner),
    )


def _loader_answers(runner: Any, notes: Notes) -> fusion.LoaderAnswers:
    facts = compat.model_facts(runner)
    noted = notes.answers(facts["shared_experts"])
    if noted is not None:
        return noted
    # Without the loader's hook (older SGLang): ask again, as the loader did.
    decided = facts["shared_experts"]
    fused = facts["fused_count"] if decided is None else decided.num_fused_shared_experts
    return fusion.ask(
        facts["model_class"],
        facts["hf_config"],
        getattr(runner.model, "quant_config", None),
        switched_off=compat.fusion_switched_off(),
        fused=fused,
    )
