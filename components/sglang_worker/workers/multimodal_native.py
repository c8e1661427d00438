"""Native multimodal workers: `--enable-multimodal`, with SGLang encoding the media itself.

They are the token workers of the same role, which take media whenever their model does; the flag
adds that a model which cannot is a mistake. SGLang gets the bytes of every medium.
"""

from __future__ import annotations

from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError
from sglang_worker.workers import decode, disaggregated_decode, prefill
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.service import WorkerService

_BY_ROLE = {
    WorkerType.NATIVE_MULTIMODAL: decode.build,
    WorkerType.NATIVE_MULTIMODAL_PREFILL: prefill.build,
    WorkerType.NATIVE_MULTIMODAL_DECODE: disaggregated_decode.build,
}


def build(context: WorkerContext) -> WorkerService:
    require_media(context)
    return _BY_ROLE[context.config.worker_type](context)


def require_media(context: WorkerContext) -> None:
    """Raises ConfigError for a model that reads text alone."""
    if not context.engine.limits.accepts_media:
        raise ConfigError(
            f"--enable-multimodal: the model {context.engine.server_args.model_path} takes text "
            "only; start it without the flag"
        )
