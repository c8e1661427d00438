"""Changes to what SGLang's schedulers publish, made inside a scheduler process.

Read in SGLang 0.5.23: ``observability/forward_pass_metrics.py`` (``_FpmPublisherThread`` encodes
with the module's ``encode``), ``managers/scheduler_components/kv_events_publisher.py``
(``emit_kv_metrics``). Older releases lack the first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

INSTANCE_FILE = "instance"
"""In the report folder: the instance id under which the planner knows this engine."""

PASSES = "sglang.srt.observability.forward_pass_metrics"
KV_METRICS = "sglang.srt.managers.scheduler_components.kv_events_publisher"


def install(folder: str | None) -> None:
    stop_unread_metrics()
    if folder:
        stamp_passes(Path(folder) / INSTANCE_FILE)


def stop_unread_metrics() -> None:
    """SGLang pushes a load message per logged batch to a socket that only Dynamo's own worker
    reads. This worker reads loads from shared memory instead, and without a reader the messages
    would pile up in the scheduler for ever: the socket has no high-water mark."""
    publisher: Any = getattr(_module(KV_METRICS), "SchedulerKvEventsPublisher", None)
    if hasattr(publisher, "emit_kv_metrics"):
        publisher.emit_kv_metrics = _nothing


def _nothing(publisher: Any) -> None:
    """Stands for `SchedulerKvEventsPublisher.emit_kv_metrics`."""


def stamp_passes(path: Path) -> None:
    """Put the instance id into every forward-pass metric.

    SGLang wants it before the engine starts, when the runtime, which gives it, does not exist.
    """
    module = _module(PASSES)
    if hasattr(module, "encode"):
        module.encode = stamped(module.encode, path)


def _module(name: str) -> Any:
    """None where this SGLang has no such module."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def stamped(encode: Callable[[Any], bytes], path: Path) -> Callable[[Any], bytes]:
    from msgspec.structs import replace

    known: list[str] = []

    def encode_with_instance(metrics: Any) -> bytes:
        if not known and path.exists():
            known.append(path.read_text())
        return encode(replace(metrics, worker_id=known[0]) if known else metrics)

    return encode_with_instance
