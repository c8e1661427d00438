"""What a table says about the machine and the versions it was measured with."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("sglang", "ai-dynamo", "torch", "uvloop")


def facts() -> dict[str, Any]:
    """``load``: the one-minute load average before the run."""
    return {
        "cores": os.cpu_count(),
        "processor": processor(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        **{name: version(name) for name in PACKAGES},
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def sentence(known: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {known[name]}" for name in PACKAGES if name in known)
    return (
        f"{known['cores']} cores ({known['processor']}), Python {known['python']}, {packages}; "
        f"{known['measured']}, load average before the run {known['load']}."
    )
