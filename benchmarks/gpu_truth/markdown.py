"""The truth table as Markdown."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_truth import verdict

_HEAD = "| draft | flags | stamp d/p/v | kernels d/p/v | device d/p/v | report and device |"
_LETTERS = {"triton": "T", "flashinfer": "F", "cutedsl": "C"}
_ORDER = ("decode", "prefill", "verify")


def render(results: list[dict[str, Any]]) -> str:
    versions = next((r["versions"] for r in results if r.get("versions")), {})
    lines = [
        "# Runner report against device kernels",
        "",
        ", ".join(f"{name} {value}" for name, value in versions.items()) or "no row started",
        "",
        "T Triton, F FlashInfer, C CuTe DSL; decode/prefill/verify; `·` the row does not run that "
        "phase. `kernels` is the report's, `device` what torch's profiler recorded.",
        "",
        _HEAD,
        "| --- | --- | --- | --- | --- | --- |",
        *(_line(result) for result in results),
        "",
    ]
    return "\n".join(lines)


def _line(result: dict[str, Any]) -> str:
    draft, setting = result["row"].split(".", 1)
    judged = verdict.judge(result)
    target = next((r for r in result.get("report") or [] if r["runner"] == "target"), None)
    if target is None:
        return f"| {draft} | {setting} | | | | did not run: {judged['why']} |"
    stamp = "/".join(_letter(target["stamp"][phase]) for phase in _ORDER)
    reported = "/".join(_letter(judged["phases"][phase]["backend"]) for phase in _ORDER)
    device = "/".join(_seen(judged["phases"][phase]) for phase in _ORDER)
    return f"| {draft} | {setting} | {stamp} | {reported} | {device} | {_outcome(judged)} |"


def _letter(backend: str | None) -> str:
    return "?" if backend is None else _LETTERS.get(backend, backend)


def _seen(phase: dict[str, Any]) -> str:
    if phase["verdict"] == "not exercised":
        return "·"
    return "+".join(_letter(backend) for backend in phase["device"]) or "none"


def _outcome(judged: dict[str, Any]) -> str:
    verdicts = {phase["verdict"] for phase in judged["phases"].values()}
    words = "agree" if judged["agrees"] else "DISAGREE" if "DISAGREES" in verdicts else "not known"
    if judged["draft_backends"]:
        words += f"; the draft ran {', '.join(judged['draft_backends'])}"
    return words if judged["ran"] else f"{words}; stopped early: {judged['why']}"
