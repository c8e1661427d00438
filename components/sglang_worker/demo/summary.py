"""What the demo prints out of the worker's ``/engine/server_info``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PHASES = ("decode", "prefill", "verify")


def acceptance_length(info: Any) -> float | None:
    """Tokens per step of the target since the start, or None when the worker does not say."""
    states = info.get("internal_states") if isinstance(info, dict) else None
    for state in states or ():
        value = state.get("avg_spec_accept_length")
        if isinstance(value, int | float):
            return float(value)
    return None


def runner_lines(info: Any) -> Iterator[str]:
    """One line per runner: its model and, per phase, the stamp and the kernel that really runs."""
    runners = info.get("linear_attn_runners") if isinstance(info, dict) else None
    for runner in runners or ():
        yield f"runner {runner['runner']}: {runner['model']}, {_phases(runner)}"


def _phases(runner: dict[str, Any]) -> str:
    stamp = runner.get("stamp")
    if stamp is None:
        return "no linear-attention stamp"
    kernels = runner.get("kernels")
    if kernels is None:
        return "stamped " + " ".join(f"{p}={stamp[p]}" for p in PHASES) + ", uses no such kernel"
    return " ".join(f"{p}={stamp[p]} (runs {kernels.get(p)})" for p in PHASES)
