"""SGLang's own series: merged from the files that its processes write, with Dynamo's labels.

With ``--enable-metrics`` every process of the engine, this one included (its tokenizer manager
sees time to first token, inter-token and end-to-end latency), keeps its values in a file of the
multiprocess folder. Each dynamo worker injects the labels of the endpoint, as Dynamo's own does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sglang_worker.observability.metrics.families import LabelTexts, render

# Both forms that SGLang uses. A folder that the operator shares may hold foreign files.
PREFIXES = ("sglang:", "sglang_")
FRESH_FOR_S = 0.1
"""A drain asks for the runtime's metrics every 20 ms; the files need not be merged each time."""


class SglangSeries:
    """``labels`` are added to every sample that has none of that name. Thread-safe."""

    def __init__(
        self,
        folder: Path,
        labels: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from prometheus_client.multiprocess import MultiProcessCollector

        self._folder = folder
        self._labels = dict(labels)
        self._label_texts = LabelTexts(labels)
        self._clock = clock
        # No registry: registering collects, and the first scrape is soon enough.
        self._collector = MultiProcessCollector(None, path=str(folder))
        self._lock = threading.Lock()
        self._text = ""
        self._text_at_s = float("-inf")

    def collect(self) -> list[Any]:
        """Metric families. Raises OSError when a file vanishes meanwhile, and RuntimeError or
        ValueError for one that cannot be read."""
        return [self._labelled(one) for one in self._found()]

    def text(self) -> str:
        """The families in Prometheus' text format, at most `FRESH_FOR_S` old; raises as above."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._text_at_s >= FRESH_FOR_S:
                self._text = render(self._found(), self._label_texts)
                self._text_at_s = now_s
            return self._text

    def size(self) -> tuple[int, int]:
        """How many files, and their bytes together."""
        sizes = [file.stat().st_size for file in self._folder.glob("*.db")]
        return len(sizes), sum(sizes)

    def _found(self) -> list[Any]:
        return [one for one in self._collector.collect() if one.name.startswith(PREFIXES)]

    def _labelled(self, metric: Any) -> Any:
        metric.samples = [
            sample._replace(labels={**self._labels, **sample.labels}) for sample in metric.samples
        ]
        return metric
