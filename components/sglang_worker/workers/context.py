"""What every worker module gets: the parts that exist once per process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.workers.admission import Admission


class WorkerContext(msgspec.Struct, frozen=True, kw_only=True):
    config: WorkerConfig
    # `engine.launch.WorkerEngine` for token workers, else what `boot.engines` starts for the type.
    engine: Any
    # Dynamo's DistributedRuntime.
    runtime: Any
    loop: asyncio.AbstractEventLoop
    admission: Admission
    # The list of DESIGN section 4, once the runners have reported.
    runners: list[dict[str, Any]] | None = None
    # False while a pause would hold a health probe, or the memory it needs is released.
    probe_may_use_engine: Callable[[], bool] = lambda: True
