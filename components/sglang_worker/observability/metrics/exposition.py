"""One scrape: every source read, rendered as Prometheus text or as OTLP's structure.

Runs on a thread of the runtime. A part that fails is counted, named once in the log, and leaves
the others as they are.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from sglang_worker.observability.metrics import definitions as d
from sglang_worker.observability.metrics.definitions import Reading
from sglang_worker.observability.metrics.families import LabelTexts, family, render, typed
from sglang_worker.observability.metrics.sglang_series import SglangSeries
from sglang_worker.observability.metrics.sources import Source

logger = logging.getLogger(__name__)

SGLANG_PART = "sglang"
FILES_PART = "sglang_files"
Part = TypeVar("Part")


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
        self._label_texts = LabelTexts()
        parts = [*self._sources, *(() if sglang is None else (SGLANG_PART, FILES_PART))]
        self._errors = dict.fromkeys(parts, 0)
        self._seconds = dict.fromkeys(parts, 0.0)

    def text(self) -> str:
        """Prometheus' text format."""
        sglang = self._sglang
        # First, for the own part tells how it went.
        theirs = "" if sglang is None else self._guarded(SGLANG_PART, sglang.text, "")
        return render(self._collect(), self._label_texts) + theirs

    def typed(self) -> list[Any]:
        sglang = self._sglang
        theirs: list[Any] = []
        if sglang is not None:
            theirs = self._guarded(SGLANG_PART, sglang.collect, theirs)
        return [typed(metric) for metric in (*self._collect(), *theirs)]

    def _collect(self) -> Iterator[Any]:
        for name, source in self._sources.items():
            yield from self._guarded(name, partial(_read, source), [])
        if (sglang := self._sglang) is not None:
            yield from self._guarded(FILES_PART, partial(_sizes, sglang), [])
        yield from _families(self._own())

    def _guarded(self, name: str, collect: Callable[[], Part], otherwise: Part) -> Part:
        began_s = self._clock()
        try:
            found = collect()
        except Exception:
            if not self._errors[name]:
                logger.exception("metrics: %s could not be read at a scrape", name)
            self._errors[name] += 1
            return otherwise
        self._seconds[name] = self._clock() - began_s
        return found

    def _own(self) -> Iterable[Reading]:
        yield d.SCRAPE_ERRORS, {(part,): count for part, count in self._errors.items()}
        yield d.SCRAPE_SECONDS, {(part,): seconds for part, seconds in self._seconds.items()}


def _read(source: Source) -> list[Any]:
    return _families(source.read())


def _families(readings: Iterable[Reading]) -> list[Any]:
    return [family(definition, values) for definition, values in readings]


def _sizes(sglang: SglangSeries) -> list[Any]:
    files, size_bytes = sglang.size()
    return _families([(d.FILES, {(): files}), (d.FILES_BYTES, {(): size_bytes})])
