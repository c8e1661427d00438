"""The startup log: the runners as a table, one line per difference. Pure text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sglang_worker.runners.report import PHASES, Difference, RunnerReport

_HEADER = ("runner", "model", "family", "attention d/p", "phase", "stamp", "source", "kernel")
_EXPLANATIONS = {
    "unsupported_on_device": "this device or combination of flags has no such kernel",
    "tree_verify_triton": "tree drafts are always verified by Triton",
    "fused_kernel": "a fused kernel bypasses the dispatcher",
    "reference_platform": "the CPU reference platform brings its own kernels",
    "backend_reads_no_stamp": "this family's backend takes its kernels from elsewhere",
    "no_backend": "this runner builds no linear-attention backend; "
    "its attention backend pair steers it",
    "unknown": "not known to this worker",
}


def lines(reports: Iterable[RunnerReport]) -> list[str]:
    """The table, header first; runners without linear attention take one row."""
    rows: list[Sequence[str]] = [_HEADER]
    for report in reports:
        rows.extend(_rows(report))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def difference_lines(reports: Iterable[RunnerReport]) -> list[str]:
    """One sentence per difference, for the warning log."""
    return [
        f"runner {report.runner} ({report.model}): {_sentence(difference)}"
        for report in reports
        for difference in report.differences
    ]


def _sentence(difference: Difference) -> str:
    why = f"{difference.reason.value}: {_EXPLANATIONS[difference.reason.value]}"
    if difference.phase == "all":
        used = "no kernel" if difference.kernel is None else difference.kernel
        return f"the stamp does not say what runs ({used}; {why})"
    return f"{difference.phase} is stamped {difference.stamp} but runs {difference.kernel} ({why})"


def _rows(report: RunnerReport) -> list[Sequence[str]]:
    pair = f"{report.attention_backend.decode or '-'}/{report.attention_backend.prefill or '-'}"
    lead = (report.runner, report.model, report.family or "-", pair)
    kernels = dict(report.kernels or {})
    if report.stamp is None and not kernels:
        return [(*lead, "-", "-", "-", "no linear attention")]
    phases = [*PHASES, *(phase for phase in kernels if phase not in PHASES)]
    rows: list[Sequence[str]] = []
    for phase in phases:
        stamp = getattr(report.stamp, phase, "-") if report.stamp else "-"
        source = getattr(report.source, phase, None) if report.source else None
        who = "-" if source is None else source.value
        rows.append((*lead, phase, stamp, who, kernels.get(phase, "-")))
        lead = ("", "", "", "")
    return rows
