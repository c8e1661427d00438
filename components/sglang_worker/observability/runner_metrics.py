"""Puts the runner gauge on the runtime's ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sglang_worker.runners import gauge
from sglang_worker.runners.report import RunnerReport


def expose(endpoint: Any, reports: Callable[[], Sequence[RunnerReport]]) -> None:
    """`endpoint` is Dynamo's; its callback runs on a thread of the runtime at each scrape."""
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    gauge.register(registry, reports)
    endpoint.metrics.register_prometheus_expfmt_callback(lambda: generate_latest(registry).decode())
