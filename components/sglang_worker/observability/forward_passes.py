"""Forward-pass metrics: SGLang's per-iteration telemetry, relayed to Dynamo's planner.

Off by default. On by SGLang's own ``--enable-forward-pass-metrics``, by ``--fpm-trace`` (the
runtime then also writes the trace files) or by upstream's old switch DYN_FORWARDPASS_METRIC_PORT.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sglang_worker.config.worker_config import WorkerConfig, WorkerType
from sglang_worker.engine import dynamo_compat_streams
from sglang_worker.engine.compat_stream_hooks import INSTANCE_FILE

logger = logging.getLogger(__name__)

PORT_VARIABLE = "DYN_FORWARDPASS_METRIC_PORT"
FLAG = "enable_forward_pass_metrics"
WITHOUT = frozenset(
    {
        WorkerType.EMBEDDING,
        WorkerType.MULTIMODAL_ENCODE,
        WorkerType.IMAGE_DIFFUSION,
        WorkerType.VIDEO_GENERATION,
    }
)
"""Worker types without passes that a planner could use."""


def wanted(config: WorkerConfig, environ: Mapping[str, str]) -> bool:
    asked = (
        config.engine.explicit.get(FLAG)
        or config.dynamo.get("fpm_trace")
        or environ.get(PORT_VARIABLE)
    )
    if asked and config.worker_type in WITHOUT:
        logger.warning(
            "forward-pass metrics are asked for, but %s workers have none", config.worker_type.value
        )
        return False
    return bool(asked)


def engine_flags(config: WorkerConfig, environ: Mapping[str, str]) -> dict[str, Any]:
    """What SGLang needs to publish them, by argparse destination; empty when off.

    The socket is abstract, its name random: nothing to clean up, and nobody can guess it.
    """
    if not wanted(config, environ):
        return {}
    name = config.engine.explicit.get("forward_pass_metrics_ipc_name")
    return {
        FLAG: True,
        "forward_pass_metrics_ipc_name": name or f"ipc://@sglang-passes-{secrets.token_hex(16)}",
        # The real one is put in by the schedulers, see `engine.compat_stream_hooks`.
        "forward_pass_metrics_worker_id": "",
    }


class ForwardPassRelay:
    """`workers.service.Background` of a node whose ranks publish passes."""

    def __init__(
        self,
        endpoint: Any,
        base: str,
        ranks: tuple[int, ...],
        folder: Path,
        worker_id: Callable[[], int],
    ) -> None:
        """``base``: SGLang's address without the rank; ``folder``: the ranks' report folder."""
        self._endpoint = endpoint
        self._base = base
        self._ranks = ranks
        self._folder = folder
        self._worker_id = worker_id
        self._relays: list[Any] = []

    async def start(self) -> None:
        unfinished = self._folder / f"{INSTANCE_FILE}.part"
        unfinished.write_text(str(self._worker_id()))
        unfinished.replace(self._folder / INSTANCE_FILE)
        for rank in self._ranks:
            self._relays.append(
                dynamo_compat_streams.relay_forward_passes(self._endpoint, f"{self._base}.{rank}")
            )
        logger.info("forward-pass metrics of %d data-parallel ranks are relayed", len(self._ranks))

    def stop(self) -> None:
        relays, self._relays = self._relays, []
        for relay in relays:
            relay.shutdown()
