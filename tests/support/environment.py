"""The environment that processes under test get: the caller's, without leftovers, on loopback."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

# Settings of the developer's shell must not steer a test; the stack sets what it needs.
_DROPPED_PREFIXES = ("DYN_", "SGLANG_", "PYTEST_", "NVIDIA_VISIBLE", "PROMETHEUS_MULTIPROC")

_FIXED = {
    # Two cores serve many processes: threads that spin cost more than they bring.
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "PYTHONUNBUFFERED": "1",
    "DYN_SDK_DISABLE_ANSI_LOGGING": "1",
    # Nothing may be fetched; a missing local file must fail at once instead of after retries.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "NO_PROXY": "*",
}


def clean_environment(overrides: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """``overrides`` win; a None value removes the variable."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_DROPPED_PREFIXES)}
    merged: dict[str, str | None] = {**kept, **_FIXED, **(overrides or {})}
    return {name: value for name, value in merged.items() if value is not None}


def with_repository_on_path(environ: Mapping[str, str]) -> dict[str, str]:
    """Lets a child run ``python -m tests.support.…``; the folder is neither ours nor upstream's."""
    paths = [str(REPOSITORY), *filter(None, [environ.get("PYTHONPATH")])]
    return {**environ, "PYTHONPATH": os.pathsep.join(paths)}
