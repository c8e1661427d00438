"""CPU time of a process, all its threads together, from the kernel's own books."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def spent_s(pid: int) -> float:
    """User and system seconds since the process began; its children are not in it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
