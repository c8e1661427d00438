"""One scrape: every source read, rendered as Prometheus text or as OTLP's structure.

Runs on a thread of the runtime. A part that fails is counted, named once in the log, and leaves
the others as they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from sglang_worker.observability.metrics import definitions as d
from sglang_worker.observability.metrics.definitions import Reading
from sglang_worker.observability.metrics.families import family, typed
from sglang_worker.observability.metrics.sglang_series import SglangSeries
from sglang_worker.observability.metrics.sources import Source

logger = logging.getLogger(__name__)

SGLANG_PART = "sglang"


class Exposition:
    """``sources`` by the name under which their failures are counted."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        sglang: SglangSeries | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._sources = dict(sources)
        self._sglang = sglang
        self._clock = clock
        parts = [*self._sources, *([SGLANG_PART] if sglang is not None else [])]
        self._errors = dict.fromkeys(parts, 0)
        self._seconds = dict.fromkeys(parts, 0.0)

    def text(self) -> str:
        """Prometheus' text format."""
        from prometheus_client.exposition import generate_latest

        rendered: str = generate_latest(_Collected(self._collect())).decode()
        return rendered

    def typed(self) -> list[Any]:
        return [typed(metric) for metric in self._collect()]

    def _collect(self) -> Iterator[Any]:
        for name, source in self._sources.items():
            yield from self._part(name, partial(_read, source))
        if (sglang := self._sglang) is not None:
            yield from self._part(SGLANG_PART, partial(_collect_sglang, sglang))
        yield from _families(self._own())

    def _part(self, name: str, collect: Callable[[], list[Any]]) -> list[Any]:
        began_s = self._clock()
        try:
            found = collect()
        except Exception:
            if not self._errors[name]:
                logger.exception("metrics: %s could not be read at a scrape", name)
            self._errors[name] += 1
            return []
        self._seconds[name] = self._clock() - began_s
        return found

    def _own(self) -> Iterable[Reading]:
        yield d.SCRAPE_ERRORS, {(part,): count for part, count in self._errors.items()}
        yield d.SCRAPE_SECONDS, {(part,): seconds for part, seconds in self._seconds.items()}


class _Collected:
    """What `generate_latest` takes for a registry."""

    def __init__(self, metrics: Iterable[Any]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Any]:
        return self._metrics


def _read(source: Source) -> list[Any]:
    return _families(source.read())


def _families(readings: Iterable[Reading]) -> list[Any]:
    return [family(definition, values) for definition, values in readings]


def _collect_sglang(sglang: SglangSeries) -> list[Any]:
    files, size_bytes = sglang.size()
    sizes = _families([(d.FILES, {(): files}), (d.FILES_BYTES, {(): size_bytes})])
    return [*sglang.collect(), *sizes]
