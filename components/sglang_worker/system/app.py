"""What the listener needs of the worker: one handler and one catalog."""

from __future__ import annotations

from typing import Protocol

import msgspec

from sglang_worker.system.state import Catalog


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call after the child's checks; the body is complete, its content unchecked."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""
    remote: str = ""


class EngineResponse(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    body: bytes = b""
    headers: dict[str, str] = {}


class EngineApp(Protocol):
    """Serves what the child hands on. `handle` must not raise: every fault is an answer."""

    def catalog(self) -> Catalog: ...

    async def handle(self, request: EngineRequest) -> EngineResponse: ...

    def refused(self, method: str, path: str, remote: str, status: int) -> None: ...
