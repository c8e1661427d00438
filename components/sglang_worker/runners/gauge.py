"""The info gauge: one sample per runner and phase, value 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sglang_worker.runners.report import PHASES, RunnerReport

NAME = "dynamo_sglang_linear_attn_runner_info"
_HELP = "Linear-attention kernels of each SGLang runner: what was stamped, what runs, who chose."
LABELS = ("runner", "model", "family", "phase", "stamp", "kernel", "source")


def label_values(reports: Iterable[RunnerReport]) -> list[tuple[str, ...]]:
    """Label values in the order of LABELS; null is the empty string."""
    return [_labels(report, phase) for report in reports for phase in _phases(report)]


class RunnerInfoCollector:
    """What a prometheus registry asks on each scrape.

    No plain Gauge: with SGLang's metrics on, prometheus_client would also write one into SGLang's
    multiprocess directory, and the series would appear twice.
    """

    def __init__(self, reports: Callable[[], Sequence[RunnerReport]]) -> None:
        self._reports = reports

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import GaugeMetricFamily

        family = GaugeMetricFamily(NAME, _HELP, labels=LABELS)
        for values in label_values(self._reports()):
            family.add_metric(values, 1)
        yield family


def register(registry: Any, reports: Callable[[], Sequence[RunnerReport]]) -> None:
    """Adds the gauge to a prometheus registry; `reports` is asked on each scrape.

    Call after the engine has started: SGLang must set PROMETHEUS_MULTIPROC_DIR before
    prometheus_client is first imported.
    """
    registry.register(RunnerInfoCollector(reports))


def _phases(report: RunnerReport) -> list[str]:
    extra = [phase for phase in report.kernels or {} if phase not in PHASES]
    return [*PHASES, *extra]


def _labels(report: RunnerReport, phase: str) -> tuple[str, ...]:
    stamp = getattr(report.stamp, phase, None) if report.stamp else None
    source = getattr(report.source, phase, None) if report.source else None
    kernel = (report.kernels or {}).get(phase)
    return (
        report.runner,
        report.model,
        report.family or "",
        phase,
        stamp or "",
        kernel or "",
        "" if source is None else source.value,
    )
