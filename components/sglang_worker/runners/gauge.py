"""The info gauge: one sample per runner and phase, value 1."""

from __future__ import annotations

from collections.abc import Iterable

from sglang_worker.runners.report import PHASES, RunnerReport

NAME = "dynamo_sglang_linear_attn_runner_info"
HELP = "Linear-attention kernels of each SGLang runner: what was stamped, what runs, who chose."
LABELS = ("runner", "model", "family", "phase", "stamp", "kernel", "source")


def label_values(reports: Iterable[RunnerReport]) -> list[tuple[str, ...]]:
    """Label values in the order of LABELS; null is the empty string."""
    return [_labels(report, phase) for report in reports for phase in _phases(report)]


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
