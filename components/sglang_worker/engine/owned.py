"""What the worker needs of whatever it started, be it `sgl.Engine`, an encoder or a generator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from sglang_worker.engine.death import Death


class OwnedEngine(Protocol):
    """One running engine. `engine.launch.WorkerEngine` is the one of token workers.

    ``death``: the first engine process that died, None while all live. ``loop``: the loop it was
    built on, where it has to be used. ``control``: SGLang's maintenance calls, None without an
    `sgl.Engine`.
    """

    death: Death | None
    started_in_s: float

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def control(self) -> Any: ...

    def begin(self) -> None:
        """On the running loop, before anything is served."""

    def held_request_ids(self) -> list[str]:
        """Ids of requests that the engine still tracks, probes excluded."""

    def watch_deaths(
        self, loop: asyncio.AbstractEventLoop, on_death: Callable[[Death], None]
    ) -> None:
        """Call ``on_death`` once when any of its processes dies."""

    def report_failure(self) -> None:
        """A child said that it failed (SIGQUIT)."""

    def shutdown(self) -> None:
        """End every process of it. Safe to call twice."""


class NoControl:
    """Stands where the lifecycle expects an engine's controls; no route leads to it."""

    async def pause(self, mode: str) -> Any:
        raise RuntimeError("this worker type cannot pause")

    async def continue_(self, body: Any) -> Any:
        raise RuntimeError("this worker type cannot pause")

    async def release_memory(self, tags: list[str]) -> Any:
        raise RuntimeError("this worker type cannot release memory")

    async def resume_memory(self, tags: list[str]) -> Any:
        raise RuntimeError("this worker type cannot release memory")
