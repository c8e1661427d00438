"""Stand-ins for the lifecycle and the engine's controls, and a way to call a route."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
from sglang_worker.system.app import EngineRequest
from sglang_worker.system.argument_checks import EngineFacts
from sglang_worker.system.configured import BodyLimits
from sglang_worker.system.routes import Route, RouteTable

LIMITS = BodyLimits(100, 1000)
FACTS = EngineFacts(device="cpu", disk_formats=("auto",))


class Answer(msgspec.Struct):
    status: int
    body: dict[str, Any]
    result: Any = None


class ToyLifecycle:
    """Notes what it was asked and answers what it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answer = Answer(200, {"worker_id": "7", "state": "serving", "reason": None})

    async def _note(self, name: str, body: Mapping[str, Any]) -> Answer:
        self.asked.append((name, dict(body)))
        return self.answer

    async def drain(self) -> Answer:
        return await self._note("drain", {})

    async def resume(self) -> Answer:
        return await self._note("resume", {})

    async def pause(self, body: Mapping[str, Any]) -> Answer:
        return await self._note("pause", body)

    async def continue_(self, body: Mapping[str, Any]) -> Answer:
        return await self._note("continue", body)

    async def release(self, body: Mapping[str, Any]) -> Answer:
        return await self._note("release", body)

    async def resume_memory(self, body: Mapping[str, Any]) -> Answer:
        return await self._note("resume_memory", body)


class Req(msgspec.Struct, kw_only=True):
    """Stands for every request class of SGLang's."""

    rid: str | None = None
    http_worker_ipc: str | None = None
    req_type: int = 0
    new_version: str = "v"
    abort_all_requests: bool = True
    mode: str = "abort"
    tags: list[str] | None = None
    load_format: str | None = None
    num_steps: int | None = None
    activities: list[str] | None = None
    serialized_named_tensors: list[bytes] = []


class ToyCalls:
    def __init__(self) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.running = 0
        self.most = 0

    def __getattr__(self, name: str) -> Any:
        async def call(body: Mapping[str, Any] | None = None) -> Any:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.005)
            self.running -= 1
            self.called.append((name, dict(body or {})))
            if self.error is not None:
                raise self.error
            return self.result

        return call


async def ask(
    routes: list[Route], path: str, body: bytes | dict[str, Any] = b"", method: str = "POST"
) -> tuple[int, Any]:
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    request = EngineRequest(method=method, path=path, body=content, remote="127.0.0.1")
    answer = await RouteTable(routes).handle(request)
    assert answer.headers["Content-Type"] == "application/json"
    return answer.status, json.loads(answer.body)
