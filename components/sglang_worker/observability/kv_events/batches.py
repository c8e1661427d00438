"""Reads just enough of a batch to count it: its number, its time, its rank, the events' types.

Wire (SGLang 0.5.20 to 0.5.23 ``disaggregation/kv_events.py``): three frames, topic, number as
eight bytes big-endian, and msgpack ``[time_s, [event, …], dp_rank]``. An event is a map with
``type``, or in older releases an array that begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sglang_worker.observability.kv_events.counters import EventKind, Fault

FRAMES = 3
NUMBER_BYTES = 8
KINDS = {
    "BlockStored": EventKind.STORED,
    "BlockRemoved": EventKind.REMOVED,
    "AllBlocksCleared": EventKind.CLEARED,
}


class _Batch(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[msgspec.Raw]
    dp_rank: int | None = None


class _Event(msgspec.Struct, gc=False):
    type: str


class _EventInArray(msgspec.Struct, array_like=True, gc=False):
    type: str


_batch = msgspec.msgpack.Decoder(_Batch)
_event = msgspec.msgpack.Decoder(_Event)
_event_in_array = msgspec.msgpack.Decoder(_EventInArray)


class Unreadable(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


class ReadBatch(msgspec.Struct, frozen=True, gc=False):
    """``kinds`` has None for an event without a readable type."""

    number: int
    made_at_s: float
    dp_rank: int | None
    kinds: tuple[EventKind | None, ...]


def number_of(frames: Sequence[Any]) -> int:
    """Raises Unreadable."""
    if len(frames) != FRAMES:
        raise Unreadable(Fault.FRAMES)
    if len(frames[1]) != NUMBER_BYTES:
        raise Unreadable(Fault.NUMBER)
    return int.from_bytes(frames[1], "big")


def read(frames: Sequence[Any]) -> ReadBatch:
    """Raises Unreadable."""
    number = number_of(frames)
    try:
        batch = _batch.decode(frames[2])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unreadable(Fault.PAYLOAD) from None
    kinds = tuple(_kind(event) for event in batch.events)
    return ReadBatch(number, batch.ts, batch.dp_rank, kinds)


def _kind(event: msgspec.Raw) -> EventKind | None:
    for decoder in (_event, _event_in_array):
        try:
            return KINDS.get(decoder.decode(event).type, EventKind.UNKNOWN)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return None
