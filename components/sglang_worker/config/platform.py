"""What the configuration asks of the CPU reference platform, which decides for itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

VARIABLE = "DYN_SGL_REFERENCE_PLATFORM"


def is_active(environ: Mapping[str, str]) -> bool:
    """Whether this process would run SGLang on the CPU reference platform."""
    from sglang_worker.reference_platform import activation

    return bool(activation.decide(environ, activation.read_signs()).active)


def why_inactive(environ: Mapping[str, str]) -> str | None:
    """The reason in one sentence, with the variable that decides; None where the platform runs."""
    from sglang_worker.reference_platform import activation

    decision = activation.decide(environ, activation.read_signs())
    if decision.active:
        return None
    return f"the CPU reference platform is not used either ({decision.reason}; see {VARIABLE})"


def process_environment(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Variables that the platform needs before torch loads; empty when it is not active."""
    if not is_active(environ):
        return {}
    from sglang_worker.reference_platform import defaults

    return defaults.process_environment()


def engine_defaults(environ: Mapping[str, str], explicit: Mapping[str, Any]) -> Mapping[str, Any]:
    """Server-argument defaults on the platform; the operator's explicit flags are absent."""
    if not is_active(environ):
        return {}
    from sglang_worker.reference_platform import defaults

    return defaults.engine_defaults(explicit)


def refusals(environ: Mapping[str, str], explicit: Mapping[str, Any]) -> list[str]:
    """What the platform cannot run, by name; empty elsewhere."""
    if not is_active(environ):
        return []
    from sglang_worker.reference_platform.refusals import refusals as refused

    return refused(explicit)
