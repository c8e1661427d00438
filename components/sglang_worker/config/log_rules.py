"""Logs and traces: refused where they cannot work, told where they are risky."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from sglang_worker.errors import ConfigError

# SGLang imports both when it traces.
TRACING_MODULES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp")
# From here on SGLang's request log holds what clients wrote and what they got.
LEVEL_WITH_TEXTS = 2
QUIET_LEVEL = 1


def check_tracing(explicit: Mapping[str, Any]) -> None:
    """SGLang would find the packages missing in every one of its processes, after the load."""
    if not explicit.get("enable_trace"):
        return
    missing = [name for name in TRACING_MODULES if not _is_there(name)]
    if missing:
        raise ConfigError(
            f"--enable-trace needs Python packages that are not installed: {', '.join(missing)} "
            "(opentelemetry-sdk and opentelemetry-exporter-otlp)"
        )


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def log_defaults(explicit: Mapping[str, Any]) -> dict[str, Any]:
    """SGLang's own default level for ``--log-requests`` would log prompts and answers."""
    if explicit.get("log_requests") and explicit.get("log_requests_level") is None:
        return {"log_requests_level": QUIET_LEVEL}
    return {}


def log_notices(explicit: Mapping[str, Any]) -> list[str]:
    if not explicit.get("log_requests"):
        return []
    level = explicit.get("log_requests_level")
    if level is None or int(level) < LEVEL_WITH_TEXTS:
        return []
    return [f"--log-requests-level {level} writes prompts and answers to the log; 0 and 1 do not"]
