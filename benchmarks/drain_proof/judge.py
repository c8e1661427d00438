"""Compares an answer with the undisturbed run's answer to the same request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum

import msgspec

from benchmarks.drain_proof.ask import Result
from benchmarks.drain_proof.plan import NEVER_MIGRATED, Kind, Request

NEAR_TIE = 1e-3


class Verdict(str, Enum):
    SAME = "same"
    # First different where the undisturbed run's two best tokens were within `NEAR_TIE`.
    NEAR_TIE = "near_tie"
    DIFFERENT = "different"
    TRUNCATED = "truncated"
    FAILED = "failed"


def judge(request: Request, reference: Result, result: Result) -> Verdict:
    if result.error is not None:
        return Verdict.FAILED
    if len(result.texts) != len(reference.texts) or None in result.finish_reasons:
        return Verdict.TRUNCATED
    if request.kind is Kind.SAMPLES:
        same_ends = result.finish_reasons == reference.finish_reasons
        return Verdict.SAME if same_ends else Verdict.DIFFERENT
    if result.texts == reference.texts and result.finish_reasons == reference.finish_reasons:
        return Verdict.SAME
    if _shorter_for_no_reason(reference, result):
        return Verdict.TRUNCATED
    return (
        Verdict.NEAR_TIE if _first_difference_is_near_tie(reference, result) else Verdict.DIFFERENT
    )


def _shorter_for_no_reason(reference: Result, result: Result) -> bool:
    """A strict prefix of the undisturbed text: tokens are missing."""
    return any(
        len(got) < len(wanted) and wanted.startswith(got)
        for got, wanted in zip(result.texts, reference.texts, strict=True)
    )


def _first_difference_is_near_tie(reference: Result, result: Result) -> bool:
    got, wanted = result.texts[0], reference.texts[0]
    same = next(
        (index for index, pair in enumerate(zip(got, wanted, strict=False)) if pair[0] != pair[1]),
        min(len(got), len(wanted)),
    )
    position = 0
    for piece, gap in zip(reference.pieces, reference.gaps, strict=False):
        position += len(piece)
        if position > same:
            return gap <= NEAR_TIE
    return False


class Score(msgspec.Struct):
    """Verdicts of one phase; requests that the frontend never migrates are counted apart."""

    verdicts: Counter[str] = msgspec.field(default_factory=Counter)
    never_migrated: Counter[str] = msgspec.field(default_factory=Counter)
    errors: Counter[str] = msgspec.field(default_factory=Counter)
    differences: list[str] = msgspec.field(default_factory=list)

    def add(self, request: Request, reference: Result, result: Result) -> Verdict:
        verdict = judge(request, reference, result)
        counted = self.never_migrated if request.kind in NEVER_MIGRATED else self.verdicts
        counted[verdict.value] += 1
        if result.error is not None:
            self.errors[result.error[:160]] += 1
        elif verdict in (Verdict.DIFFERENT, Verdict.TRUNCATED) and len(self.differences) < 10:
            self.differences.append(
                f"#{request.number} {request.kind.value} max_tokens={request.max_tokens}: "
                f"{reference.texts} {reference.finish_reasons} -> "
                f"{result.texts} {result.finish_reasons}"
            )
        return verdict

    @property
    def requests(self) -> int:
        return self.verdicts.total() + self.never_migrated.total()

    def lost(self) -> int:
        """Failed, truncated or different requests of the kind that can be migrated."""
        bad = (Verdict.FAILED, Verdict.TRUNCATED, Verdict.DIFFERENT)
        return sum(self.verdicts[verdict.value] for verdict in bad)


def merged(scores: Sequence[Score]) -> Score:
    total = Score()
    for score in scores:
        total.verdicts += score.verdicts
        total.never_migrated += score.never_migrated
        total.errors += score.errors
        total.differences += score.differences
    return total
