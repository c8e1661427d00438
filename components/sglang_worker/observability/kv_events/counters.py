"""Counts of what happened on SGLang's KV event streams, per data-parallel rank.

Plain attributes, written by `watcher` on the worker's loop and read from anywhere. The runtime's
own relay counts neither lost nor unreadable batches (see docs/kv-events.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

import msgspec


class EventKind(str, Enum):
    STORED = "stored"
    REMOVED = "removed"
    CLEARED = "cleared"
    UNKNOWN = "unknown"


class Fault(str, Enum):
    """Why a batch could not be read, in part or at all."""

    FRAMES = "frames"  # not topic, number, payload
    NUMBER = "number"  # the sequence number is not eight bytes
    PAYLOAD = "payload"  # no batch in msgpack
    EVENT = "event"  # one event of a batch has no readable type
    RANK = "rank"  # the batch says that another rank made it


class StreamCounters(msgspec.Struct):
    """One rank's stream since the worker started."""

    batches: int = 0
    events: dict[EventKind, int] = msgspec.field(
        default_factory=lambda: dict.fromkeys(EventKind, 0)
    )
    malformed: dict[Fault, int] = msgspec.field(default_factory=lambda: dict.fromkeys(Fault, 0))
    # Numbers that were skipped, without those from before the worker listened.
    skipped: int = 0
    missed_at_start: int = 0
    late: int = 0
    repeated: int = 0
    restarts: int = 0

    @property
    def lost(self) -> int:
        """Batches that were skipped and have not come since."""
        return self.skipped - self.late


class Sample(msgspec.Struct, frozen=True):
    """One value of a Prometheus counter, its name without prefix and ``_total``."""

    name: str
    labels: dict[str, str]
    value: int


SINGLE: dict[str, tuple[str, str]] = {
    "batches": ("kv_events_batches", "Batches of KV events read from SGLang's stream"),
    "skipped": (
        "kv_events_batches_skipped",
        "Batches whose number was skipped; lost are those that do not come late either",
    ),
    "missed_at_start": (
        "kv_events_batches_missed_at_start",
        "Batches that SGLang had published before the worker listened, restarts included",
    ),
    "late": ("kv_events_batches_late", "Batches that came after a later one"),
    "repeated": ("kv_events_batches_repeated", "Batches that came twice"),
    "restarts": ("kv_events_publisher_restarts", "Times that a stream began anew"),
}
"""Attribute of `StreamCounters` -> metric name without prefix and ``_total``, and its help."""
EVENTS = ("kv_events_seen", "KV events read from SGLang's stream, by type")
MALFORMED = ("kv_events_malformed", "Batches or events that could not be read, by fault")


class KvEventCounters:
    """All ranks whose streams this process watches."""

    def __init__(self) -> None:
        self.ranks: dict[int, StreamCounters] = {}

    def rank(self, dp_rank: int) -> StreamCounters:
        return self.ranks.setdefault(dp_rank, StreamCounters())

    def samples(self) -> Iterator[Sample]:
        for rank, stream in sorted(self.ranks.items()):
            label = {"dp_rank": str(rank)}
            for attribute, (name, _) in SINGLE.items():
                yield Sample(name, label, getattr(stream, attribute))
            for kind, count in stream.events.items():
                yield Sample(EVENTS[0], {**label, "type": kind.value}, count)
            for fault, count in stream.malformed.items():
                yield Sample(MALFORMED[0], {**label, "fault": fault.value}, count)


COUNTERS = KvEventCounters()
"""The ones of this process; empty without ``--kv-events-config``."""
