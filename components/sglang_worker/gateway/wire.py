"""Frames between the main process and a gateway: four bytes of length, then the content.

The first frame to a gateway is its plan, pickled: both ends are the same program and user, and the
pair has no name that another process could open. All later ones are JSON.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.system.state import WorkerState

_LENGTH = struct.Struct("!I")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a gateway needs to serve.

    ``environ``: variables that the engine's start has set since the gateway was spawned.
    ``runners``: the report of DESIGN section 4. ``started_in_s``: of the engine.
    """

    index: int
    owner_pid: int
    config: WorkerConfig
    environ: Mapping[str, str]
    runners: list[dict[str, Any]] | None
    started_in_s: float


class EngineDied(msgspec.Struct, frozen=True):
    """To a gateway: `engine.death.Death`, field by field."""

    name: str
    pid: int


class Report(msgspec.Struct, frozen=True):
    """From a gateway, at every change and every `BEAT_S`. ``held``: its requests in SGLang."""

    state: WorkerState
    held: int


BEAT_S = 0.5


def frame(message: msgspec.Struct) -> bytes:
    content = pickle.dumps(message) if isinstance(message, Plan) else msgspec.json.encode(message)
    return _LENGTH.pack(len(content)) + content


def read_plan(pair: socket.socket) -> Plan | None:
    """Blocks until the plan is there; None when the main process has given up."""
    head = _exactly(pair, _LENGTH.size)
    content = None if head is None else _exactly(pair, _LENGTH.unpack(head)[0])
    if content is None:
        return None
    plan: Plan = pickle.loads(content)
    return plan


def _exactly(pair: socket.socket, size_bytes: int) -> bytes | None:
    found = bytearray()
    while len(found) < size_bytes:
        part = pair.recv(size_bytes - len(found))
        if not part:
            return None
        found += part
    return bytes(found)


async def read_frame(reader: asyncio.StreamReader) -> bytes | None:
    """The next content; None at the end of the pair."""
    try:
        head = await reader.readexactly(_LENGTH.size)
        return await reader.readexactly(_LENGTH.unpack(head)[0])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
