"""Dynamo's runtime with the server that it must have."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.engine import dynamo_compat
from sglang_worker.errors import RuntimeServerError
from sglang_worker.system.metadata_ports import SETTING


def open_runtime(config: WorkerConfig, loop: asyncio.AbstractEventLoop) -> Any:
    """A DistributedRuntime on the running loop.

    Raises RuntimeServerError when a system port is set and the runtime has no server: it says
    "Failed to bind" in its log and goes on (ai-dynamo 1.6.1), and the worker would never be
    healthy, show no metrics and have a model card without its files.
    """
    runtime = dynamo_compat.create_runtime(config.runtime, loop)
    if config.system.port is None or dynamo_compat.system_server_url(runtime) is not None:
        return runtime
    dynamo_compat.shutdown(runtime)
    port = os.environ.get("DYN_SYSTEM_PORT", "0")
    raise RuntimeServerError(
        f"the runtime's own server could not be opened on {config.system.host}:{port} "
        f"(DYN_SYSTEM_HOST, {SETTING}); the runtime's log has the reason"
    )
