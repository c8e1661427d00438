"""Holds a row's report against its recorded kernels. Pure: a result in, a judged row out."""

from __future__ import annotations

from typing import Any

from sglang_worker.runners.agreement import KernelName

from benchmarks.gpu_truth import device_kernels

# Phase of the report -> forward mode of the target in which it runs.
_MODES = {"prefill": "EXTEND", "decode": "DECODE", "verify": "TARGET_VERIFY"}
PHASES = tuple(_MODES)


def judge(result: dict[str, Any]) -> dict[str, Any]:
    """Per phase: reported class and backend, backends seen on the device, and the verdict."""
    kernels = (result.get("profile") or {}).get("kernels") or {}
    target = next((r for r in result.get("report") or [] if r["runner"] == "target"), None)
    if target is None:
        return {"row": result["row"], "ran": False, "why": why_not(result), "phases": {}}
    phases = {
        phase: _phase((target["kernels"] or {}).get(phase), kernels.get(f"target.{mode}"))
        for phase, mode in _MODES.items()
    }
    draft = sorted({name for key, names in kernels.items() if "draft." in key for name in names})
    verdicts = {phase["verdict"] for phase in phases.values()}
    return {
        "row": result["row"],
        "ran": result.get("stage") == "done",
        "why": None if result.get("stage") == "done" else why_not(result),
        "phases": phases,
        "draft_backends": device_kernels.backends_of(draft),
        "agrees": "DISAGREES" not in verdicts and "agrees" in verdicts,
        "suspects": device_kernels.suspects_of(
            {name for names in kernels.values() for name in names}
        ),
    }


def _phase(reported: str | None, names: dict[str, int] | None) -> dict[str, Any]:
    expected = None if reported is None else KernelName(reported).backend
    seen = device_kernels.backends_of(names or ())
    if names is None:
        verdict = "not exercised"
    elif not seen:
        verdict = "no known kernel recorded"
    else:
        verdict = "agrees" if seen == [expected] else "DISAGREES"
    return {"reported": reported, "backend": expected, "device": seen, "verdict": verdict}


def why_not(result: dict[str, Any]) -> str:
    """One line on why a row did not run to its end."""
    reason = result.get("refused") or result.get("error") or f"stage {result.get('stage')}"
    tail = [line for line in (result.get("log_tail") or "").splitlines() if "Error" in line]
    if tail and not result.get("refused"):
        reason = f"{reason}; {tail[-1].strip()}"
    return " ".join(reason.split())[:300]
