"""A gateway's side of the pair: its state to the main process, the engine's death from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from sglang_worker.engine.death import Death
from sglang_worker.gateway import wire
from sglang_worker.system.state import RuntimeAddress, WorkerState


class GatewayOutlet:
    """`system.outlet.StateOutlet`. ``held``: how many requests SGLang tracks for this gateway."""

    def __init__(self, writer: asyncio.StreamWriter, held: Callable[[], int]) -> None:
        self._writer = writer
        self._held = held
        self._state = WorkerState()

    @property
    def state(self) -> WorkerState:
        return self._state

    def publish(self, **changes: Any) -> None:
        self._state = msgspec.structs.replace(self._state, **changes)
        self.tell()

    def set_runtime_address(self, host: str, port: int) -> None:
        self.publish(runtime=RuntimeAddress(host, port))

    def tell(self) -> None:
        self._writer.write(wire.frame(wire.Report(self._state, self._held())))

    async def beat(self) -> None:
        """Until cancelled: a main process that hears nothing calls this gateway unhealthy."""
        while True:
            await asyncio.sleep(wire.BEAT_S)
            self.tell()


async def hear(
    reader: asyncio.StreamReader, on_death: Callable[[Death], None], on_end: Callable[[], None]
) -> None:
    """``on_end``: the main process is gone, and with it the engine."""
    while (content := await wire.read_frame(reader)) is not None:
        told = msgspec.json.decode(content, type=wire.EngineDied)
        on_death(Death(told.name, told.pid))
    on_end()
