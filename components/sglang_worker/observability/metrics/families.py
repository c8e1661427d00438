"""Readings -> prometheus_client's metric families, ready to be rendered.

Families are built per scrape from plain values: a Counter or Gauge object would, with SGLang's
metrics on, also write into the multiprocess files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sglang_worker.observability.metrics.definitions import Definition, Kind, Values

REMEMBERED_LABELS = 20_000
_NEEDS_ESCAPE = re.compile(r'[\\\n"]')


def family(definition: Definition, values: Values) -> Any:
    """A `prometheus_client.core.Metric`; without values only its help and type are served."""
    built = _MAKERS[definition.kind](definition)
    for labels, value in values.items():
        _ADDERS[definition.kind](built, labels, value)
    return built


def _core() -> Any:
    # Late: PROMETHEUS_MULTIPROC_DIR has to stand before the first import.
    from prometheus_client import core

    return core


_MAKERS: Mapping[Kind, Callable[[Definition], Any]] = {
    Kind.COUNTER: lambda one: _core().CounterMetricFamily(one.name, one.help, labels=one.labels),
    Kind.GAUGE: lambda one: _core().GaugeMetricFamily(one.name, one.help, labels=one.labels),
    Kind.HISTOGRAM: lambda one: _core().HistogramMetricFamily(
        one.name, one.help, labels=one.labels
    ),
    Kind.SUMMARY: lambda one: _core().SummaryMetricFamily(one.name, one.help, labels=one.labels),
}
_ADDERS: Mapping[Kind, Callable[[Any, tuple[str, ...], Any], None]] = {
    Kind.COUNTER: lambda built, labels, value: built.add_metric(labels, value),
    Kind.GAUGE: lambda built, labels, value: built.add_metric(labels, value),
    Kind.HISTOGRAM: lambda built, labels, value: built.add_metric(
        labels, buckets=value.cumulative(), sum_value=value.sum
    ),
    Kind.SUMMARY: lambda built, labels, value: built.add_metric(
        labels, count_value=value[0], sum_value=value[1]
    ),
}


class LabelTexts:
    """Sets of labels as text, remembered from scrape to scrape. ``added`` go into every set that
    has none of that name."""

    def __init__(self, added: Mapping[str, str] | None = None) -> None:
        self._added = dict(added or {})
        self._known: dict[tuple[tuple[str, str], ...], str] = {}

    def of(self, labels: Mapping[str, str]) -> str:
        key = tuple(labels.items())
        text = self._known.get(key)
        if text is None:
            if len(self._known) >= REMEMBERED_LABELS:
                self._known.clear()
            text = self._known[key] = _label_text({**self._added, **labels})
        return text


def render(metrics: Iterable[Any], labels: LabelTexts) -> str:
    """Families in Prometheus' text format, as prometheus_client writes them in a fraction of the
    time: it validates and formats every name of every sample anew. Names are plain (no UTF-8)."""
    from prometheus_client.utils import floatToGoString

    lines: list[str] = []
    for metric in metrics:
        name = metric.name + ("_total" if metric.type == "counter" else "")
        help = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines.append(f"# HELP {name} {help}\n# TYPE {name} {metric.type}\n")
        for sample in metric.samples:
            value = floatToGoString(sample.value)
            lines.append(f"{sample.name}{labels.of(sample.labels)} {value}\n")
    return "".join(lines)


def _label_text(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join([f'{name}="{_escaped(labels[name])}"' for name in sorted(labels)]) + "}"


def _escaped(value: str) -> str:
    if _NEEDS_ESCAPE.search(value) is None:
        return value
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def typed(metric: Any) -> tuple[str, str, str, str, list[Any]]:
    """The structure that Dynamo's OTLP export takes; see dynamo/prometheus_metrics.pyi."""
    samples = [
        (sample.name, list(sample.labels.items()), float(sample.value), sample.timestamp)
        for sample in metric.samples
    ]
    return metric.name, metric.documentation, metric.type, metric.unit, samples
