"""What a drain run is written down as, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEAD = (
    "| phase | requests | the same answer | lost or different | never migrated by the frontend | "
    "times, median (most) in s |\n| --- | --- | --- | --- | --- | --- |"
)
# The counts of disturbances are not times.
COUNTS = frozenset({"cycles"})


def markdown(report: Mapping[str, Any]) -> str:
    lines = [
        "# Drain, resume and shutdown under load",
        "",
        f"`python -m benchmarks.drain --{report['profile']}`, {report['machine']}, grace "
        f"{report['grace_s']} s: {'passed' if report['passed'] else 'FAILED'}.",
        "",
        HEAD,
        *(_line(phase) for phase in report["phases"]),
        "",
    ]
    return "\n".join(lines)


def _line(phase: Mapping[str, Any]) -> str:
    verdicts = phase["verdicts"]
    same = verdicts.get("same", 0)
    lost = sum(verdicts.values()) - same
    guided = ", ".join(f"{count} {name}" for name, count in phase["never_migrated"].items())
    times = "; ".join(
        f"{name} {one['median_s']} ({one['max_s']}) of {one['count']}"
        for name, one in phase["times"].items()
        if one and name not in COUNTS
    )
    broken = "".join(f"; BROKEN: {what}" for what in phase["broken"])
    cells = [phase["phase"], phase["requests"], same, lost, guided, times + broken]
    return "| " + " | ".join(map(str, cells)) + " |"
