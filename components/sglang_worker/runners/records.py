"""What one rank hands over at start: its runners' reports and the facts that only checks read."""

from __future__ import annotations

import msgspec

from sglang_worker.runners.fusion import LoaderAnswers
from sglang_worker.runners.report import RunnerReport


class RankIdentity(msgspec.Struct, frozen=True):
    """Where a scheduler process stands; `rank` is ((dp*pp_size)+pp)*tp_size+tp."""

    rank: int
    dp: int
    pp: int
    tp: int


class RunnerRecord(msgspec.Struct, frozen=True):
    report: RunnerReport
    loader: LoaderAnswers
    quantization: str | None = None
    linear_backend: str | None = None
    is_draft: bool = False


class RankRecord(msgspec.Struct, frozen=True):
    """`errors` are checks that failed inside the process, as sentences."""

    identity: RankIdentity
    runners: tuple[RunnerRecord, ...] = ()
    errors: tuple[str, ...] = ()


def encode(record: RankRecord) -> bytes:
    return msgspec.json.encode(record)


def decode(data: bytes) -> RankRecord:
    """Raises msgspec.DecodeError or ValidationError for anything but a complete record."""
    return msgspec.json.decode(data, type=RankRecord)
