"""Shrinks raw results: linear-attention kernels keep their names, the others are counted."""

from __future__ import annotations

from typing import Any

from benchmarks.gpu_truth import device_kernels

# CuTe DSL spells out every tensor layout; what names the kernel stands in front.
_NAME_LENGTH = 140


def condense(result: dict[str, Any]) -> dict[str, Any]:
    profile = dict(result.get("profile") or {})
    if "kernels" in profile:
        profile["kernels"] = {
            mode: _telling(names) for mode, names in sorted(profile["kernels"].items())
        }
    return {**result, "profile": profile}


def _telling(names: dict[str, int]) -> dict[str, int]:
    """Kernel name to launches; launches of all other kernels under ``(other kernels)``."""
    suspects = set(device_kernels.suspects_of(names))
    kept: dict[str, int] = {}
    other = 0
    for name, launches in names.items():
        if device_kernels.backend_of(name) is None and name not in suspects:
            other += launches
            continue
        short = name[:_NAME_LENGTH]
        kept[short] = kept.get(short, 0) + launches
    return {**kept, "(other kernels)": other}
