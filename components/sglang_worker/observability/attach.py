"""Puts this worker's metrics, and SGLang's, on the runtime's ``/metrics``."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_worker.observability.metrics.exposition import Exposition
from sglang_worker.observability.metrics.folder import VARIABLE
from sglang_worker.observability.metrics.gc_pauses import GC_PAUSES
from sglang_worker.observability.metrics.sglang_series import SglangSeries
from sglang_worker.observability.metrics.sources import Source

logger = logging.getLogger(__name__)


def attach(
    endpoint: Any, sources: Mapping[str, Source], sglang: SglangSeries | None = None
) -> Exposition:
    """``endpoint`` is Dynamo's, served or not. Call it once per process: everything that is
    attached is served once more by each further call.
    """
    exposition = Exposition({**sources, "gc": GC_PAUSES}, sglang)
    # Two surfaces: /metrics, and the runtime's OTLP export where that is switched on.
    endpoint.metrics.register_prometheus_expfmt_callback(exposition.text)
    endpoint.metrics.register_prometheus_typed_callback(exposition.typed)
    return exposition


def sglang_series(enabled: bool, labels: Mapping[str, str]) -> SglangSeries | None:
    """SGLang's own series; ``enabled``: its ``--enable-metrics``.

    Call it once the engine runs: until then SGLang may still name the folder itself.
    """
    folder = os.environ.get(VARIABLE)
    if not enabled or not folder:
        return None
    if not _writes_files():
        # Never seen; without this line the symptom is that latencies are missing.
        logger.error(
            "prometheus_client was imported before %s was set: the metrics of this process "
            "(time to first token, inter-token latency, end-to-end latency) are missing",
            VARIABLE,
        )
    return SglangSeries(Path(folder), labels)


def _writes_files() -> bool:
    from prometheus_client import values

    return bool(getattr(values.ValueClass, "_multiprocess", False))
