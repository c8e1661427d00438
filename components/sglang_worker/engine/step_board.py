"""Progress out of the generator's processes, and cancellation into them, through one small file.

SGLang's generator takes a request and answers when it is done: it has no call that cancels, and
its progress goes to SGLang's own HTTP server. So every rank looks at this memory-mapped file
between two denoising steps.

All ranks of one request must leave at the same step, or the others wait in a collective for ever.
A rank passes each boundary under the file's lock, and so does a cancellation, which names the next
boundary that no rank has passed: each rank meets it there. Boundaries are counted over the whole
request, several images one after the other included.

Layout (little endian): `MARKS` of (request, boundary), then per rank (request, boundaries passed,
steps done, steps in all, ready). Request numbers start at 1 and never repeat.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

MARK = struct.Struct("<QQ")
# Cancellations that wait at the same time: one per request that runs, so never more than replicas.
MARKS = 64
SLOT = struct.Struct("<QQIIQ")


class Progress(msgspec.Struct, frozen=True):
    """Denoising steps of the image or video under way; ``total`` 0: not known yet."""

    done: int
    total: int


class Slot(msgspec.Struct, frozen=True):
    request: int = 0
    passed: int = 0
    done: int = 0
    total: int = 0
    ready: int = 0


class StepBoard:
    """One process's view. Reading needs no lock: a torn number only misstates a log line."""

    def __init__(self, path: Path, ranks: int) -> None:
        self._ranks = ranks
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._memory = mmap.mmap(self._file, size_bytes(ranks))

    @classmethod
    def create(cls, path: Path, ranks: int) -> StepBoard:
        path.write_bytes(bytes(size_bytes(ranks)))
        path.chmod(0o600)
        return cls(path, ranks)

    def close(self) -> None:
        self._memory.close()
        os.close(self._file)

    # --- in the worker ---------------------------------------------------------------------------

    def progress(self, request: int) -> Progress | None:
        """Where the request stands, None before its first step."""
        slot = next((one for one in self._slots() if one.request == request), None)
        return None if slot is None else Progress(slot.done, slot.total)

    def position(self) -> int:
        """Changes whenever any rank passes a boundary."""
        return hash(tuple((slot.request, slot.passed) for slot in self._slots()))

    def cancel(self, request: int) -> None:
        """Ask every rank to leave the request at its next common step boundary."""
        with self._locked():
            passed = [slot.passed for slot in self._slots() if slot.request == request]
            MARK.pack_into(self._memory, self._mark(request), request, max(passed, default=0) + 1)

    def ready_ranks(self) -> int:
        """How many ranks look at the board."""
        return sum(1 for slot in self._slots() if slot.ready)

    # --- in a rank -------------------------------------------------------------------------------

    def announce(self, rank: int) -> None:
        self._write(rank, Slot(ready=1))

    def pass_boundary(self, rank: int, request: int, progress: Progress) -> bool:
        """Between two steps. False: the request ends here, on every rank."""
        with self._locked():
            before = self._slot(rank)
            passed = before.passed + 1 if before.request == request else 1
            self._write(rank, Slot(request, passed, progress.done, progress.total, 1))
            marked, boundary = MARK.unpack_from(self._memory, self._mark(request))
            return not (marked == request and passed >= boundary)

    # --- layout ----------------------------------------------------------------------------------

    def _slots(self) -> Iterator[Slot]:
        return (self._slot(rank) for rank in range(self._ranks))

    def _slot(self, rank: int) -> Slot:
        return Slot(*SLOT.unpack_from(self._memory, slot_offset(rank)))

    def _write(self, rank: int, slot: Slot) -> None:
        SLOT.pack_into(
            self._memory,
            slot_offset(rank),
            slot.request,
            slot.passed,
            slot.done,
            slot.total,
            slot.ready,
        )

    def _mark(self, request: int) -> int:
        return (request % MARKS) * MARK.size

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def slot_offset(rank: int) -> int:
    return MARKS * MARK.size + rank * SLOT.size


def size_bytes(ranks: int) -> int:
    return slot_offset(ranks)
