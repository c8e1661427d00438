"""Optional libraries that flags of the chosen worker type need, checked before a model loads.

Not part of ``--check``: a plan may be made on another machine than the one it is for.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from sglang_worker.config.worker_config import WorkerConfig, WorkerType
from sglang_worker.errors import ConfigError

Find = Callable[[str], object]
# Types that hand embeddings over, or take them.
_TRANSFER_EMBEDDINGS = frozenset(
    {
        WorkerType.MULTIMODAL_ENCODE,
        WorkerType.INTERNAL_MULTIMODAL,
        WorkerType.INTERNAL_MULTIMODAL_PREFILL,
    }
)


def check_libraries(config: WorkerConfig, find: Find = importlib.util.find_spec) -> None:
    """Raises ConfigError naming the flag and the package it lacks."""
    if find("nixl") is not None:
        return
    mode = config.embedding_transfer_mode
    if config.worker_type in _TRANSFER_EMBEDDINGS and mode != "local":
        raise ConfigError(
            f"--embedding-transfer-mode {mode} needs the package nixl, which is not installed; "
            "local works between workers of one machine"
        )
    if config.model.frontend_decoding:
        raise ConfigError(
            "--frontend-decoding needs the package nixl, which is not installed; without the flag "
            "the worker fetches and decodes media itself"
        )
