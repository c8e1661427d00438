"""Every metric of this worker, once: name, type, labels and what it means.

`docs/metrics.md` lists them, and a test compares the page with what a real worker serves. Labels
take their values from small closed sets, except where a definition says what bounds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from sglang_worker.runners import gauge

PREFIX = "dynamo_sglang_"


class Kind(str, Enum):
    """The word of a ``# TYPE`` line."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


class Definition(msgspec.Struct, frozen=True):
    """``name`` is the family's, with ``_total`` for a counter."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


Values = Mapping[tuple[str, ...], Any]
"""Label values in the order of `Definition.labels` -> a number; for histograms a
`histogram.Histogram`, for summaries ``(count, sum)``."""
Reading = tuple[Definition, Values]


def _counter(name: str, help: str, *labels: str) -> Definition:
    return Definition(f"{PREFIX}{name}_total", Kind.COUNTER, help, labels)


def _gauge(name: str, help: str, *labels: str) -> Definition:
    return Definition(PREFIX + name, Kind.GAUGE, help, labels)


# --- the worker -----------------------------------------------------------------------------------

BUILD_INFO = _gauge(
    "build_info", "Always 1; what this process runs.", "worker_type", "sglang", "ai_dynamo"
)
HEALTHY = _gauge("healthy", "1 while the worker counts as fit to serve, as /ready sees it.")
ENGINE_UP = _gauge("engine_up", "1 until a process of the engine has died.")
MODEL_LOAD = _gauge("model_load_seconds", "From the engine's launch until it could serve.")

# --- runners --------------------------------------------------------------------------------------

RUNNER_INFO = Definition(gauge.NAME, Kind.GAUGE, gauge.HELP, gauge.LABELS)
RUNNER_VALID = _gauge(
    "runner_report_valid",
    "0 when ranks disagree, a report is missing, or a later read contradicts the startup report.",
    "runner",
)
RUNNER_DIFFERENCE = _gauge(
    "runner_difference_info",
    "Always 1; a phase in which a runner does not run what it is stamped with, and why.",
    "runner",
    "phase",
    "reason",
)

# --- lifecycle ------------------------------------------------------------------------------------

STATE = _gauge("lifecycle_state", "1 for the present state, 0 for the others.", "state")
ENTERED = _counter("lifecycle_state_entered", "How often a state was entered.", "state")
STATE_SECONDS = _counter(
    "lifecycle_seconds",
    "Time at each state and reason; reason is empty when nothing is waited for.",
    "state",
    "reason",
)
WAITING = _gauge(
    "lifecycle_waiting", "1 for what a drain or a shutdown waits for now, 0 for the rest.", "reason"
)
DRAIN_ELAPSED = _gauge("drain_elapsed_seconds", "Age of the drain under way, 0 without one.")
DRAIN_DURATION = Definition(
    f"{PREFIX}drain_duration_seconds",
    Kind.SUMMARY,
    "Drains that ended in drained, from the first withdrawal on.",
)
DRAINS_ABANDONED = _counter(
    "drains_abandoned", "Drains that a resume cancelled or a stop overtook."
)
SHUTDOWN_STAGE = _gauge(
    "shutdown_stage_seconds", "Time in each stage of the shutdown, the present one so far.", "stage"
)

# --- requests -------------------------------------------------------------------------------------

ADMITTED = _counter("requests_admitted", "Requests that passed the admission gate; no probes.")
REJECTED_LATE = _counter(
    "requests_rejected_late", "Requests that met a closed gate and were sent to another worker."
)
CANCELLED = _counter("requests_cancelled", "Requests whose client went away before their end.")
IN_FLIGHT = _gauge("requests_in_flight", "Admitted requests that have not ended; no probes.")
HELD = _gauge("engine_held_requests", "Request ids that SGLang still tracks; no probes.")
UNSENT = _gauge(
    "unsent_response_bytes",
    "Bytes of answers in this process's sockets; only read while draining, drained or stopping.",
)
STALLED = _gauge(
    "stalled_streams", "Answers that wait for a reader which has fallen behind; a thread each."
)

# --- discovery ------------------------------------------------------------------------------------

DESIRED = _gauge("registration_desired", "1 while the worker wants to be in discovery.")
CONFIRMED = _gauge(
    "registration_confirmed", "1 for what discovery has confirmed of it, 0 for the rest.", "answer"
)
DISCOVERY_ERRORS = _counter(
    "discovery_errors", "Writes to discovery that failed, by what they were for.", "operation"
)
DISCOVERY_FAILING = _gauge("discovery_failing", "1 while the last write to discovery has failed.")
DISCOVERY_ERROR_AGE = _gauge(
    "discovery_last_error_age_seconds", "Since a write to discovery last failed; absent if never."
)

# --- engine routes --------------------------------------------------------------------------------

ROUTE_CALLS = _counter(
    "engine_route_calls",
    "Calls that reached the worker, by route (unknown for paths that are none) and HTTP status.",
    "path",
    "code",
)

# --- cache ----------------------------------------------------------------------------------------

KV_BLOCKS = _gauge("kv_blocks", "KV cache blocks of the rank.", "dp_rank")
KV_BLOCKS_USED = _gauge(
    "kv_blocks_used",
    "Blocks that requests hold, without what the prefix cache can give back.",
    "dp_rank",
)
HIT_RATIO = _gauge(
    "kv_cache_hit_ratio", "Share of prompt tokens found in the prefix cache, of late.", "dp_rank"
)

# --- process --------------------------------------------------------------------------------------

GC_PAUSE = Definition(
    f"{PREFIX}gc_pause_seconds",
    Kind.HISTOGRAM,
    "How long Python's garbage collector stopped this process since it serves, by generation.",
    ("generation",),
)
GC_LONGEST = _gauge("gc_longest_pause_seconds", "The longest of them.")
FILES = _gauge("multiprocess_files", "Files through which SGLang's processes hand over metrics.")
FILES_BYTES = _gauge("multiprocess_bytes", "Size of those files.")
SCRAPE_ERRORS = _counter("scrape_errors", "Parts that could not be read at a scrape.", "part")
SCRAPE_SECONDS = _gauge(
    "scrape_duration_seconds", "How long each part took at the last scrape.", "part"
)

# --- upstream's names -----------------------------------------------------------------------------

_UPSTREAM = ("model", "dynamo_component", "dp_rank")
UPSTREAM_BLOCKS = Definition(
    "dynamo_component_total_blocks",
    Kind.GAUGE,
    f"As {KV_BLOCKS.name}, under the name that Dynamo's own worker uses.",
    _UPSTREAM,
)
UPSTREAM_USAGE = Definition(
    "dynamo_component_gpu_cache_usage_percent",
    Kind.GAUGE,
    f"{KV_BLOCKS_USED.name} / {KV_BLOCKS.name}, 0 to 1, under Dynamo's own name.",
    _UPSTREAM,
)
UPSTREAM_HIT_RATE = Definition(
    "dynamo_component_kv_cache_hit_rate",
    Kind.GAUGE,
    f"As {HIT_RATIO.name}, under the name that Dynamo's own worker uses.",
    _UPSTREAM,
)
UPSTREAM_LOAD = Definition(
    "dynamo_component_model_load_time_seconds",
    Kind.GAUGE,
    f"As {MODEL_LOAD.name}, under the name that Dynamo's own worker uses.",
    _UPSTREAM[:2],
)
