"""One log line per state-changing call: when, what, from where, with what result. No bodies."""

from __future__ import annotations

import logging
from datetime import datetime, timezone

logger = logging.getLogger("sglang_worker.audit")


def record(
    method: str, path: str, remote: str, status: int, duration_s: float | None = None
) -> None:
    """Log one call. The path is the caller's text, so it is shown quoted and cut."""
    took = "" if duration_s is None else f" duration_ms={duration_s * 1000:.0f}"
    logger.info(
        "audit time=%s method=%s path=%r remote=%s status=%d%s",
        datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        method,
        path[:200],
        remote or "-",
        status,
        took,
    )
