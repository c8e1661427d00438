"""Small records for the pure tests: a healthy rank, varied where a test needs it."""

from __future__ import annotations

from typing import Any

import msgspec
from sglang_worker.runners.fusion import LoaderAnswers
from sglang_worker.runners.records import RankIdentity, RankRecord, RunnerRecord
from sglang_worker.runners.report import (
    AttentionPair,
    FusionDecision,
    RunnerReport,
    Source,
    Sources,
    Stamp,
)

TRITON = Stamp(decode="triton", prefill="triton", verify="triton")
KERNELS = dict.fromkeys(("decode", "prefill", "verify", "tree_verify"), "TritonGDNKernel")


def report(rank: int = 0, **changes: Any) -> RunnerReport:
    base = RunnerReport(
        runner="target",
        model="Qwen3NextForCausalLM",
        family="gdn",
        attention_backend=AttentionPair(decode="triton", prefill="triton"),
        stamp=TRITON,
        source=Sources(decode=Source.BASE, prefill=Source.BASE, verify=Source.RULE),
        kernels=KERNELS,
        agrees=True,
        differences=(),
        shared_experts_fusion=FusionDecision(False, "the model class does not offer it"),
        report_valid=True,
        ranks=(rank,),
    )
    return msgspec.structs.replace(base, **changes)


def runner(rank: int = 0, *, loader: LoaderAnswers | None = None, **changes: Any) -> RunnerRecord:
    described = report(rank, **changes)
    return RunnerRecord(
        report=described,
        loader=loader or LoaderAnswers(described.model),
        linear_backend=None if described.kernels is None else "GDNAttnBackend",
        is_draft=described.runner != "target",
    )


def rank_record(rank: int = 0, *runners: RunnerRecord, pp: int = 0, **changes: Any) -> RankRecord:
    identity = RankIdentity(rank=rank, dp=0, pp=pp, tp=rank)
    return RankRecord(identity=identity, runners=runners or (runner(rank),), **changes)


def by_rank(*records: RankRecord) -> dict[int, RankRecord]:
    return {record.identity.rank: record for record in records}
