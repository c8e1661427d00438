"""Frames between the worker and the listener's child: pure encoding, no sockets.

A frame is ``kind (1 byte) | call id (4) | payload length (4) | payload``, numbers big-endian.
Bodies travel as BODY frames of at most `CHUNK_BYTES`, so that state pushes and acknowledgements
never wait behind a 64 MiB weight payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import msgspec

from sglang_worker.system.state import Catalog, WorkerState

_HEADER = struct.Struct(">BII")
CHUNK_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = 64 << 20


class Kind(IntEnum):
    STATE = 1  # worker -> child: StatePush
    ACK = 2  # child -> worker: the call id is the sequence number
    CATALOG = 3  # worker -> child: Catalog
    REQUEST = 4  # child -> worker: RequestHead
    RESPONSE = 5  # worker -> child: ResponseHead
    BODY = 6  # both: the next bytes of the call's body
    REFUSED = 7  # child -> worker: Refusal, for the audit log


class Frame(msgspec.Struct, frozen=True):
    kind: Kind
    call_id: int
    payload: bytes


class StatePush(msgspec.Struct, frozen=True):
    """``sent_at_s`` is CLOCK_MONOTONIC, which all processes of a host share."""

    sequence: int
    sent_at_s: float
    state: WorkerState


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    query: str = ""
    remote: str = ""
    body_bytes: int = 0


class ResponseHead(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    headers: dict[str, str] = {}
    body_bytes: int = 0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """A state-changing call that the child itself turned away."""

    method: str
    path: str
    remote: str
    status: int


class ProtocolFault(Exception):
    """The peer sent bytes that are no frame; the pair is unusable and must be replaced."""


_encoder = msgspec.msgpack.Encoder()
_DECODERS: dict[type, msgspec.msgpack.Decoder[Any]] = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in (StatePush, Catalog, RequestHead, ResponseHead, Refusal)
}


def encode(kind: Kind, call_id: int = 0, payload: bytes = b"") -> bytes:
    return _HEADER.pack(kind, call_id, len(payload)) + payload


def encode_struct(kind: Kind, value: msgspec.Struct, call_id: int = 0) -> bytes:
    return encode(kind, call_id, _encoder.encode(value))


def encode_body(call_id: int, body: bytes) -> Iterator[bytes]:
    """The BODY frames of one message, each small enough to interleave with others."""
    for start in range(0, len(body), CHUNK_BYTES):
        yield encode(Kind.BODY, call_id, body[start : start + CHUNK_BYTES])


def decode_struct(frame: Frame, expected: type[Any]) -> Any:
    """Decode a frame's payload; raises `ProtocolFault` when it is not what it claims to be."""
    try:
        return _DECODERS[expected].decode(frame.payload)
    except msgspec.MsgspecError as error:
        raise ProtocolFault(f"{frame.kind.name} frame: {error}") from error


class FrameDecoder:
    """Incremental: feed bytes as they arrive, take the frames that are complete."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        while len(self._buffer) - position >= _HEADER.size:
            kind, call_id, length = _HEADER.unpack_from(self._buffer, position)
            if length > MAX_PAYLOAD_BYTES:
                raise ProtocolFault(f"frame of {length} bytes")
            end = position + _HEADER.size + length
            if len(self._buffer) < end:
                break
            payload = bytes(self._buffer[position + _HEADER.size : end])
            frames.append(Frame(_kind(kind), call_id, payload))
            position = end
        del self._buffer[:position]
        return frames


def _kind(value: int) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise ProtocolFault(f"unknown frame kind {value}") from None
