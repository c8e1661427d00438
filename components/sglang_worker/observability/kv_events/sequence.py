"""What a batch's sequence number says about the stream that it came on.

SGLang numbers the batches of each rank from 0 and never repeats one; a publisher that begins anew
begins at 0 again. A batch carries the time (seconds since the epoch) at which it was made, which
tells a late or repeated batch from one of a publisher that began anew.
"""

from __future__ import annotations

from enum import Enum

import msgspec

REMEMBERED_GAPS = 10_000
"""Missing numbers kept, so that a batch that only comes late is not counted as lost."""


class Step(str, Enum):
    FIRST = "first"
    NEXT = "next"
    GAP = "gap"
    LATE = "late"
    REPEATED = "repeated"
    RESTARTED = "restarted"


class Verdict(msgspec.Struct, frozen=True):
    """``missing``: how many numbers were skipped right before this batch."""

    step: Step
    missing: int = 0


class SequenceCheck:
    """One stream. Feed it every batch in the order of arrival."""

    def __init__(self) -> None:
        self._next: int | None = None
        self._made_at_s = 0.0
        # Insertion-ordered: the oldest is forgotten first.
        self._missing: dict[int, None] = {}

    def observe(self, number: int, made_at_s: float | None) -> Verdict:
        """``made_at_s`` is None for a batch whose content cannot be read; without a time it never
        counts as one of a publisher that began anew."""
        made_at_s = self._made_at_s if made_at_s is None else made_at_s
        expected, self._next = self._next, number + 1
        if expected is None:
            return self._begin(Step.FIRST, number, made_at_s)
        if number == expected:
            self._made_at_s = made_at_s
            return Verdict(Step.NEXT)
        if number > expected:
            return self._gap(expected, number, made_at_s)
        if made_at_s > self._made_at_s:
            self._missing.clear()
            return self._begin(Step.RESTARTED, number, made_at_s)
        # Older than what came before it: the stream goes on where it was.
        self._next = expected
        if number in self._missing:
            del self._missing[number]
            return Verdict(Step.LATE)
        return Verdict(Step.REPEATED)

    def _begin(self, step: Step, number: int, made_at_s: float) -> Verdict:
        self._made_at_s = made_at_s
        return Verdict(step, number)

    def _gap(self, expected: int, number: int, made_at_s: float) -> Verdict:
        self._made_at_s = made_at_s
        for lost in range(max(expected, number - REMEMBERED_GAPS), number):
            self._missing[lost] = None
        while len(self._missing) > REMEMBERED_GAPS:
            del self._missing[next(iter(self._missing))]
        return Verdict(Step.GAP, number - expected)
