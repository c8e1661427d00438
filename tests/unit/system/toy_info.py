"""An engine that answers server_info, as slowly as a test wants."""

from __future__ import annotations

import asyncio
from typing import Any

from sglang_worker.system.server_info import ServerInfo


class ToyInfo:
    def __init__(self) -> None:
        self.queries = 0
        self.release = asyncio.Event()
        self.release.set()

    async def all(self) -> dict[str, Any]:
        return {"api_key": "very-secret", "model_path": "m", "internal_states": [{"n": 0}]}

    async def states(self) -> list[dict[str, Any]]:
        self.queries += 1
        mine = self.queries
        await asyncio.sleep(0.01)
        await self.release.wait()
        return [{"n": mine, "password": "very-secret"}]


def info_of(toy: ToyInfo) -> ServerInfo:
    return ServerInfo(toy.all, toy.states, lambda: [{"runner": "target"}])
