"""From flags to the one worker type (DESIGN section 3), as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError

MODE_FLAG = "--disaggregation-mode"


class Selection(msgspec.Struct, frozen=True):
    """What the operator chose; ``mode`` is ``--disaggregation-mode`` as written, or None."""

    embedding: bool = False
    image_diffusion: bool = False
    video_generation: bool = False
    dllm_algorithm: str | None = None
    enable_multimodal: bool = False
    dedicated_mm_encoder: bool = False
    mode: str | None = None

    @property
    def role(self) -> str | None:
        """The mode without the spellings of "aggregated"."""
        return None if self.mode in (None, "null", "agg") else self.mode


# (multimodal, dedicated encoder, role) -> type; a missing row is refused by `_check_multimodal`.
_BY_ROLE: dict[tuple[bool, bool, str | None], WorkerType] = {
    (False, False, None): WorkerType.AGGREGATED,
    (False, False, "pd"): WorkerType.AGGREGATED,
    (False, False, "prefill"): WorkerType.PREFILL,
    (False, False, "decode"): WorkerType.DECODE,
    (False, False, "encode"): WorkerType.MULTIMODAL_ENCODE,
    (True, False, None): WorkerType.NATIVE_MULTIMODAL,
    (True, False, "pd"): WorkerType.NATIVE_MULTIMODAL,
    (True, False, "prefill"): WorkerType.NATIVE_MULTIMODAL_PREFILL,
    (True, False, "decode"): WorkerType.NATIVE_MULTIMODAL_DECODE,
    (True, False, "encode"): WorkerType.MULTIMODAL_ENCODE,
    (True, True, "pd"): WorkerType.INTERNAL_MULTIMODAL,
    (True, True, "prefill"): WorkerType.INTERNAL_MULTIMODAL_PREFILL,
    (True, True, "decode"): WorkerType.INTERNAL_MULTIMODAL_DECODE,
}

_EXCLUSIVE: tuple[tuple[str, str, WorkerType], ...] = (
    ("embedding", "--embedding-worker", WorkerType.EMBEDDING),
    ("image_diffusion", "--image-diffusion-worker", WorkerType.IMAGE_DIFFUSION),
    ("video_generation", "--video-generation-worker", WorkerType.VIDEO_GENERATION),
    ("dllm_algorithm", "--dllm-algorithm", WorkerType.LLM_DIFFUSION),
)
# Types for which --enable-multimodal is a capability of the same worker, not another worker.
_MAY_BE_MULTIMODAL = frozenset({WorkerType.EMBEDDING})

DEFAULT_COMPONENT: Mapping[WorkerType, str] = {
    WorkerType.PREFILL: "prefill",
    WorkerType.NATIVE_MULTIMODAL_PREFILL: "prefill",
    WorkerType.INTERNAL_MULTIMODAL_PREFILL: "prefill",
    WorkerType.MULTIMODAL_ENCODE: "encode",
}


def decide(selection: Selection, names: Mapping[str, str] | None = None) -> WorkerType:
    """The worker type; ``names`` maps a dest to how it was set (flag or variable) for errors."""
    names = names or {}
    exclusive = [
        (names.get(f"{field}_worker", names.get(field, flag)), worker_type)
        for field, flag, worker_type in _EXCLUSIVE
        if getattr(selection, field)
    ]
    rivals = [name for name, _ in exclusive]
    if selection.dedicated_mm_encoder:
        rivals.append(names.get("dedicated_mm_encoder", "--dedicated-mm-encoder"))
    if selection.role is not None:
        rivals.append(f"{MODE_FLAG} {selection.role}")
    if exclusive:
        worker_type = exclusive[0][1]
        if selection.enable_multimodal and worker_type not in _MAY_BE_MULTIMODAL:
            rivals.append(names.get("enable_multimodal", "--enable-multimodal"))
        _refuse_rivals(rivals)
        return worker_type
    _check_multimodal(selection, names)
    return _BY_ROLE[(selection.enable_multimodal, selection.dedicated_mm_encoder, selection.role)]


def _refuse_rivals(rivals: Sequence[str]) -> None:
    if len(rivals) > 1:
        raise ConfigError(
            f"{' and '.join(rivals)} choose different worker types; a worker has exactly one"
        )


def _check_multimodal(selection: Selection, names: Mapping[str, str]) -> None:
    if not selection.dedicated_mm_encoder:
        return
    flag = names.get("dedicated_mm_encoder", "--dedicated-mm-encoder")
    if not selection.enable_multimodal:
        raise ConfigError(f"{flag} needs --enable-multimodal")
    if selection.role == "encode":
        raise ConfigError(
            f"{flag} and {MODE_FLAG} encode choose different worker types: the flag is for the "
            "workers that use a separate encode worker, not for that worker itself"
        )
    if selection.role is None:
        raise ConfigError(f"{flag} needs {MODE_FLAG} pd, prefill or decode")
