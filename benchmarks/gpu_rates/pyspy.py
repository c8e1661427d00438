"""Where a process spends its time, by py-spy, while something else keeps it busy."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

SECONDS, HERTZ = 8, 200
SHOWN = 12


def record(pid: int, busy: Callable[[], None], file: Path) -> dict[str, list[str]]:
    """Samples of ``pid`` while ``busy`` is called again and again; stacks go to ``file``.

    Returns the functions with most samples, by thread and own time, and by own time alone; empty
    when py-spy is not there.
    """
    if shutil.which("py-spy") is None:
        return {}
    command = ["py-spy", "record", "--pid", str(pid), "--duration", str(SECONDS)]
    command += ["--rate", str(HERTZ), "--format", "raw", "--threads", "--nonblocking"]
    child = subprocess.Popen(
        [*command, "--output", str(file)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while child.poll() is None:
            busy()
    finally:
        child.kill()
        child.wait()
    return condense(file.read_text()) if file.exists() else {}


def condense(text: str) -> dict[str, list[str]]:
    """Of collapsed stacks, ``thread;outer;...;inner count``."""
    own: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        threads[frames[0]] += int(count)
        own[f"{frames[0]}: {frames[-1]}"] += int(count)
    total = sum(threads.values()) or 1
    return {
        "threads": [f"{name}: {count / total:.2f}" for name, count in threads.most_common(SHOWN)],
        "own": [f"{name}: {count / total:.3f}" for name, count in own.most_common(3 * SHOWN)],
    }
