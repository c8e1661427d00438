"""Classes shaped like SGLang's, without SGLang: for binding, plans and the bridge."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

if TYPE_CHECKING:
    from nowhere import OnlyForTypeCheckers  # type: ignore[import-not-found]


class Request:
    """Looks like FastAPI's."""


Request.__module__ = "fastapi"


class Kind(Enum):
    FULL = "full"
    PART = "part"


class Marker:
    pass


class PauseReq(msgspec.Struct, kw_only=True, tag=True, array_like=True):
    rid: str | None = None
    http_worker_ipc: str | None = None
    mode: Literal["abort", "in_place"] = "abort"


class UpdateReq(msgspec.Struct, kw_only=True):
    names: list[str]
    shapes: list[list[int]]
    scale: float = 1.0
    blob: Annotated[list[bytes], Marker()] = []
    kind: Kind = Kind.FULL
    limits: dict[str, int | float] | None = None


@dataclasses.dataclass
class LoadReq:
    lora_name: str
    pinned: bool = False

    def __post_init__(self) -> None:
        if not self.lora_name:
            raise ValueError("lora_name is empty")


class ToyManager:
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.communicator = lambda: None  # callable, yet no method

    async def pause_generation(self, obj: PauseReq) -> None:
        self.calls.append(obj)

    async def update(self: OnlyForTypeCheckers, obj: UpdateReq, request: Request | None) -> Any:
        assert request is None
        self.calls.append(obj)
        return True, "updated"

    async def load(self, obj: LoadReq, request: Request | None = None) -> Any:
        self.calls.append(obj)
        return obj

    def abort(self, rid: str = "", abort_all: bool = False) -> None:
        self.calls.append((rid, abort_all, threading.get_ident()))

    async def two(self, first: PauseReq, second: LoadReq) -> None: ...

    async def more(self, obj: PauseReq, count: int) -> None: ...

    async def stream(self) -> Any:
        yield 1

    async def state(self) -> list[dict[str, Any]]:
        return [{"api_key": "very-secret", "load": float("nan")}]

    async def _hidden(self) -> None: ...

    @property
    def busy(self) -> bool:
        return False


class ToyEngine:
    size = 3

    def __init__(self, manager: ToyManager) -> None:
        self.tokenizer_manager = manager
        self.loop: Any = asyncio.new_event_loop()
        self.threads: list[int] = []
        self.overlap = 0
        self.most = 0

    def flush_cache(self) -> Any:
        return self.loop.run_until_complete(self._flush())

    async def _flush(self) -> str:
        self.overlap += 1
        self.most = max(self.most, self.overlap)
        await asyncio.sleep(0.02)
        self.overlap -= 1
        self.threads.append(threading.get_ident())
        return "flushed"

    def init_group(self, address: str, port: int, backend: str = "nccl") -> Any:
        return True, f"{address}:{port}:{backend}"

    def anything(self, **more: Any) -> Any:
        return more

    def fails(self) -> None:
        raise RuntimeError("engine said no")

    def encode(self) -> Any:
        raise AssertionError("the model ran")

    def update_weights_from_disk(self) -> Any:
        raise AssertionError("weights were written")

    def refuses(self) -> Any:
        return {"success": False, "message": "not now"}

    async def async_thing(self, n: int) -> int:
        return n + 1

    def get_server_info(self) -> Any:
        return self.loop.run_until_complete(self._info())

    async def _info(self) -> Any:
        return {"api_key": "very-secret", "internal_states": [{"x": 1}]}

    @staticmethod
    def plain(text: str) -> str:
        return text

    def maybe_streams(self, stream: bool = False) -> Any:
        return iter_one() if stream else "whole"

    def positional(self, *values: int) -> None: ...

    def generate(self) -> Any:
        yield 1


def iter_one() -> Any:
    yield 1
