"""The counters of `observability.kv_events` as readings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import msgspec

from sglang_worker.observability.kv_events.counters import (
    EVENTS,
    MALFORMED,
    SINGLE,
    KvEventCounters,
)
from sglang_worker.observability.metrics.definitions import PREFIX, Definition, Kind, Reading

_RANK = "dp_rank"
_LABELLED = ((EVENTS, "type"), (MALFORMED, "fault"))


def kv_event_definitions() -> Iterator[tuple[str, Definition]]:
    """By the counters' own names."""
    for name, help in SINGLE.values():
        yield name, Definition(f"{PREFIX}{name}_total", Kind.COUNTER, f"{help}.", (_RANK,))
    for (name, help), label in _LABELLED:
        yield name, Definition(f"{PREFIX}{name}_total", Kind.COUNTER, f"{help}.", (_RANK, label))


class KvEventSource(msgspec.Struct, frozen=True):
    counters: KvEventCounters

    def read(self) -> Iterable[Reading]:
        found: dict[str, dict[tuple[str, ...], int]] = defaultdict(dict)
        definitions = dict(kv_event_definitions())
        for sample in self.counters.samples():
            labels = definitions[sample.name].labels
            found[sample.name][tuple(sample.labels[label] for label in labels)] = sample.value
        for name, definition in definitions.items():
            yield definition, found[name]
