"""Values that fit their type and would still end SGLang's schedulers: refused before they are sent.

Applied by method name, so that fixed and configured routes to one method have the same rules.
"""

from __future__ import annotations

import os
import pickletools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from sglang_worker.system.conversion import RecordField
from sglang_worker.system.faults import BadRequest
from sglang_worker.system.generation_checks import check_generation

_OUTPUT_VARIABLE = "SGLANG_TORCH_PROFILER_DIR"
_FALLBACK_FOLDER = "/tmp"
_ACTIVITIES = ("CPU", "GPU")
_CUDA_ACTIVITIES = ("MEM", "CUDA_PROFILER")
_TENSOR_FORMATS = ("direct", "flattened_bucket")


class EngineFacts(msgspec.Struct, frozen=True):
    """``device`` is SGLang's name; ``disk_formats`` or ``sampling`` (the fields that a caller may
    set) empty, and ``vocab_size`` 0: unknown, not checked."""

    device: str
    tp_size: int = 1
    disk_formats: tuple[str, ...] = ()
    weight_loaders: tuple[str, ...] = ()
    vocab_size: int = 0
    sampling: Mapping[str, RecordField] = {}


def check_arguments(method: str, values: Mapping[str, Any], facts: EngineFacts) -> None:
    """Raises BadRequest naming the field."""
    check = _CHECKS.get(method)
    if check is not None:
        check(values, facts)


def _start_profile(values: Mapping[str, Any], facts: EngineFacts) -> None:
    """SGLang opens its files only when profiling stops, and records CUDA memory on any device."""
    allowed = (*_ACTIVITIES, *(_CUDA_ACTIVITIES if facts.device == "cuda" else ()))
    for activity in values.get("activities") or ():
        if activity not in allowed:
            raise BadRequest(
                f"activities: {activity!r} cannot be recorded here; known are {', '.join(allowed)}"
            )
    for name in ("profile_id", "profile_prefix"):
        text = values.get(name) or ""
        if "/" in text or "\0" in text:
            raise BadRequest(f"{name}: becomes part of a file name and must not contain '/'")
    _check_folder(values.get("output_dir") or os.getenv(_OUTPUT_VARIABLE) or _FALLBACK_FOLDER)


def _check_folder(name: str) -> None:
    try:
        folder = Path(name).expanduser()
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK | os.X_OK)
    except (OSError, ValueError, RuntimeError) as error:
        raise BadRequest(f"output_dir: traces cannot be written to {name!r}: {error}") from None
    if not writable:
        raise BadRequest(f"output_dir: traces cannot be written to {name!r}: not writable")


def _weights_from_disk(values: Mapping[str, Any], facts: EngineFacts) -> None:
    load_format = values.get("load_format")
    if load_format is not None and facts.disk_formats and load_format not in facts.disk_formats:
        raise BadRequest(
            f"load_format: unknown {load_format!r}; known are {', '.join(facts.disk_formats)}"
        )


def _weights_from_tensor(values: Mapping[str, Any], facts: EngineFacts) -> None:
    load_format = values.get("load_format")
    known = (*_TENSOR_FORMATS, *facts.weight_loaders)
    if load_format is not None and load_format not in known:
        raise BadRequest(f"load_format: unknown {load_format!r}; known are {', '.join(known)}")
    payloads = values.get("serialized_named_tensors")
    if payloads is None:
        return
    if len(payloads) != facts.tp_size:
        raise BadRequest(
            f"serialized_named_tensors: expected {facts.tp_size} payloads, one for each "
            f"tensor-parallel rank, not {len(payloads)}"
        )
    for index, payload in enumerate(payloads):
        _check_pickle(payload, f"serialized_named_tensors[{index}]")


def _check_pickle(payload: bytes, where: str) -> None:
    """Reads the opcodes without running them: a cut or foreign payload is told from a pickle."""
    try:
        for _ in pickletools.genops(payload):
            pass
    except Exception as error:
        # pickletools promises no exception types for malformed input.
        raise BadRequest(f"{where}: no serialized tensors: {error}") from None


def _init_group(values: Mapping[str, Any], facts: EngineFacts) -> None:
    """A rank that the group cannot have makes every member wait for one that never comes, and the
    scheduler with them. Called without its keywords SGLang says so itself."""
    port, world = values.get("master_port", 1), values.get("world_size", facts.tp_size)
    offset = values.get("rank_offset", 0)
    if not 0 < port < 65536:
        raise BadRequest(f"master_port: must be between 1 and 65535, got {port}")
    if offset < 0:
        raise BadRequest(f"rank_offset: must be at least 0, got {offset}")
    if world < offset + facts.tp_size:
        raise BadRequest(
            f"world_size: {world} members cannot hold ranks {offset} to "
            f"{offset + facts.tp_size - 1} of this engine"
        )


def _generate(values: Mapping[str, Any], facts: EngineFacts) -> None:
    check_generation(values, facts.vocab_size, facts.sampling)


_CHECKS = {
    "async_generate": _generate,
    "generate": _generate,
    "init_weights_update_group": _init_group,
    "start_profile": _start_profile,
    "update_weights_from_disk": _weights_from_disk,
    "update_weights_from_tensor": _weights_from_tensor,
}
