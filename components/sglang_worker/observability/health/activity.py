"""Where the judge's readings come from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from sglang_worker.observability.health.judge import Reading


class Activity(Protocol):
    def read(self) -> Reading:
        """Cheap, on the worker's loop; ``held`` is left to the caller."""

    def held_probes(self) -> int:
        """Probes, running or aborted, of which the engine still holds an id."""


class CountedActivity:
    """For engines of which only the requests are known: no progress can be seen, so a probe that
    waits behind requests says nothing, and an idle engine must answer."""

    def __init__(self, held_requests: Callable[[], Collection[str]], ranks: int = 1) -> None:
        self._held_requests = held_requests
        self._turns = (None,) * ranks

    def read(self) -> Reading:
        return Reading(turns=self._turns, others=bool(self._held_requests()))

    def held_probes(self) -> int:
        return 0
