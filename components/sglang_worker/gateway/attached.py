"""The engine as a gateway has it: a tokenizer worker of its own, and processes that are not its."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sglang_worker.engine import compat_engine
from sglang_worker.engine.death import Death
from sglang_worker.engine.launch import WorkerEngine


class AttachedEngine(WorkerEngine):
    """`engine.owned.OwnedEngine` whose deaths are told by the main process, which watches them."""

    def __init__(self, engine: Any, started_in_s: float) -> None:
        super().__init__(engine, compat_engine.LaunchRecord(prefer_fork=False), started_in_s)
        self._on_death: Callable[[Death], None] | None = None

    def watch_deaths(
        self, loop: asyncio.AbstractEventLoop, on_death: Callable[[Death], None]
    ) -> None:
        self._on_death = on_death
        if self.death is not None:
            on_death(self.death)

    def died(self, death: Death) -> None:
        """On the loop. A second one changes nothing."""
        if self.death is None:
            self.death = death
            if self._on_death is not None:
                self._on_death(death)
