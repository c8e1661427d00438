"""The runner report: frozen values whose builtins are the JSON of DESIGN section 4."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

SERVER_INFO_KEY = "linear_attn_runners"
PHASES = ("decode", "prefill", "verify")


class Source(str, Enum):
    """Who chose a phase's backend."""

    FLAG = "flag"
    AUTO_DEFAULT = "auto_default"
    BASE = "base"
    RULE = "rule"
    RESOLVER = "resolver"


class Reason(str, Enum):
    """Why the kernel of a phase is not the stamp's."""

    UNSUPPORTED_ON_DEVICE = "unsupported_on_device"
    TREE_VERIFY_TRITON = "tree_verify_triton"
    FUSED_KERNEL = "fused_kernel"
    REFERENCE_PLATFORM = "reference_platform"
    BACKEND_READS_NO_STAMP = "backend_reads_no_stamp"
    NO_BACKEND = "no_backend"
    UNKNOWN = "unknown"


class AttentionPair(msgspec.Struct, frozen=True):
    """Names of the full-attention backends; None where SGLang has not resolved one."""

    decode: str | None = None
    prefill: str | None = None


class Stamp(msgspec.Struct, frozen=True):
    """SGLang's resolved linear-attention choice of one runner."""

    decode: str
    prefill: str
    verify: str


class Sources(msgspec.Struct, frozen=True):
    decode: Source
    prefill: Source
    verify: Source


class Difference(msgspec.Struct, frozen=True):
    """One phase whose kernel is not the stamp's; phase ``all`` when no kernel was built."""

    phase: str
    stamp: str | None
    kernel: str | None
    reason: Reason


class FusionDecision(msgspec.Struct, frozen=True):
    """Whether the shared experts are fused; ``enabled`` None when the model does not say."""

    enabled: bool | None
    reason: str


class RunnerReport(msgspec.Struct, frozen=True):
    """One runner as seen by the ranks in `ranks`; field order is the JSON's."""

    runner: str
    model: str
    family: str | None
    attention_backend: AttentionPair
    stamp: Stamp | None
    source: Sources | None
    kernels: Mapping[str, str] | None
    agrees: bool | None
    differences: tuple[Difference, ...]
    shared_experts_fusion: FusionDecision
    report_valid: bool
    ranks: tuple[int, ...]


def to_builtins(reports: Iterable[RunnerReport]) -> list[dict[str, Any]]:
    """The JSON of DESIGN section 4 as plain dictionaries and lists."""
    # Through JSON, because tuples would stay tuples and readers compare with lists.
    built: list[dict[str, Any]] = json.loads(msgspec.json.encode(list(reports)))
    return built


def from_builtins(value: Any) -> tuple[RunnerReport, ...]:
    """The reports in `value`; raises msgspec.ValidationError when it is not a runner list."""
    return msgspec.convert(value, tuple[RunnerReport, ...])


def to_json(reports: Iterable[RunnerReport]) -> str:
    """One line of JSON, the form that the model card's runtime data holds."""
    return json.dumps(to_builtins(reports), separators=(",", ":"))
