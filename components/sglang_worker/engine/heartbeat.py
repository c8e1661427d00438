"""A counter that every scheduler process turns with its loop, in memory shared with the worker.

It tells a scheduler that is busy with a long prefill, and answers nobody meanwhile, from one that
hangs. Turning it costs well under a microsecond and no message. One file per process in the folder
of the runner reports, which is private and removed at exit; ``<replica>-<rank>`` in its name.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

COUNTER = struct.Struct("=Q")
PREFIX = "turns-"
# Called in every turn of every kind of scheduler loop, whether anything arrived or not.
EVERY_TURN = "process_input_requests"


class Heartbeat:
    """The writing side, in the scheduler's process."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(descriptor, COUNTER.size)
            self._memory = mmap.mmap(descriptor, COUNTER.size)
        finally:
            os.close(descriptor)
        self._turns = 0

    def turn(self) -> None:
        self._turns += 1
        COUNTER.pack_into(self._memory, 0, self._turns)


def install(scheduler_class: Any, folder: Path, replica: int, rank: int) -> bool:
    """From now on schedulers of this process turn their counter; False where the installed SGLang
    has no such method, and nothing will be seen of its progress but outputs."""
    method = getattr(scheduler_class, EVERY_TURN, None)
    if not callable(method):
        return False
    beat = Heartbeat(folder / f"{PREFIX}{replica}-{rank}")
    setattr(scheduler_class, EVERY_TURN, _counted(method, beat.turn))
    return True


def _counted(method: Callable[..., Any], turn: Callable[[], None]) -> Callable[..., Any]:
    def counted(scheduler: Any, *arguments: Any, **keywords: Any) -> Any:
        turn()
        return method(scheduler, *arguments, **keywords)

    return counted


class HeartbeatReader:
    """The worker's side. Counters of ranks on other nodes cannot be seen."""

    def __init__(self, folder: Path | None, ranks: int, *, one_replica: bool = False) -> None:
        """``ranks``: data-parallel ones. ``one_replica``: they share the attention of one replica's
        processes, which run in step."""
        self._folder = folder
        self._replicas = tuple(0 if one_replica else rank for rank in range(ranks))
        self._memories: dict[int, list[mmap.mmap]] = {}

    def read(self) -> tuple[int | None, ...]:
        """Turns so far per data-parallel rank, those of its processes added up: they wait for one
        another, so that all stop soon after one has."""
        if not self._memories:
            self._open()
        return tuple(self._turns(replica) for replica in self._replicas)

    def _turns(self, replica: int) -> int | None:
        memories = self._memories.get(replica)
        if memories is None:
            return None
        return sum(COUNTER.unpack_from(memory, 0)[0] for memory in memories)

    def _open(self) -> None:
        """All at once: every scheduler made its file before the engine was ready."""
        if self._folder is None:
            return
        for path in sorted(self._folder.glob(f"{PREFIX}*")):
            replica = int(path.name.removeprefix(PREFIX).split("-")[0])
            with open(path, "rb") as file:
                memory = mmap.mmap(file.fileno(), COUNTER.size, prot=mmap.PROT_READ)
            self._memories.setdefault(replica, []).append(memory)
