"""Reading the runtime's Prometheus text: only what the completion check needs.

The gauges of DESIGN section 6: in-flight requests per endpoint, and the request plane's pool tasks
and queue depth. The KV publisher's own endpoint (``worker_kv_query_source_*``) answers routers for
as long as the worker lives and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

INFLIGHT = "dynamo_component_inflight_requests"
POOL_TASKS = "dynamo_work_handler_pool_active_tasks"
QUEUE_DEPTH = "dynamo_work_handler_queue_depth"
WATCHED = (INFLIGHT, POOL_TASKS, QUEUE_DEPTH)
KV_QUERY_PREFIX = "worker_kv_query_source_"
ENDPOINT_LABEL = "dynamo_endpoint"

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')


class GaugesMissing(ValueError):
    """The text lacks a gauge that the check relies on, so nothing can be concluded from it."""


def busy(text: str) -> float:
    """The sum of all gauges that have to be 0 before the worker counts as finished.

    Raises `GaugesMissing` when the in-flight gauge is absent: a worker that serves an endpoint
    always has it.
    """
    total = 0.0
    seen_inflight = False
    for name, endpoint, value in _samples(text):
        if name == INFLIGHT:
            seen_inflight = True
            if endpoint.startswith(KV_QUERY_PREFIX):
                continue
        total += value
    if not seen_inflight:
        raise GaugesMissing(f"the runtime's metrics have no {INFLIGHT}")
    return total


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    """(metric, endpoint label or "", value) of the watched gauges."""
    # Only this ends a line; label values may hold what `str.splitlines` also takes for an end.
    for line in text.split("\n"):
        if not line.startswith(WATCHED):
            continue
        match = _SAMPLE.match(line)
        if match is None or match["name"] not in WATCHED:
            continue
        labels = dict(_LABEL.findall(match["labels"] or ""))
        yield match["name"], labels.get(ENDPOINT_LABEL, ""), float(match["value"])
