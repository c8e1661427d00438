"""The rows of the kernel table: what a user can choose for target and draft.

Decode/prefill/verify on a Hopper GPU: T Triton, F FlashInfer, C CuTe DSL. A row with one library
in every phase is a ``single``; CuTe DSL has no prefill kernel there, so its row prefills with
Triton and is still what that one flag gives. A ``mixed`` row takes a library per phase.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from benchmarks.gpu_rates.shapes import DRAFT_SHAPES, TARGET_SHAPES, Decode, Prefill

_CHAIN = {
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}
_NEXTN = {"speculative_algorithm": "NEXTN", **_CHAIN}
_STANDALONE = {"speculative_algorithm": "STANDALONE", **_CHAIN}
_TREE = {
    "speculative_algorithm": "NEXTN",
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 2,
    "speculative_num_draft_tokens": 4,
}


class Row(msgspec.Struct, frozen=True):
    """``options`` are arguments of `sgl.Engine`; ``dense_draft`` adds the second model. ``kind``
    is what it stands for among the rows whose names begin alike (up to the colon), which differ in
    kernels alone; none when it is there for itself."""

    name: str
    options: Mapping[str, Any] = {}
    dense_draft: bool = False
    kind: Literal["single", "mixed"] | None = None

    @property
    def drafts(self) -> bool:
        return "speculative_algorithm" in self.options

    @property
    def shapes(self) -> tuple[Prefill | Decode, ...]:
        return DRAFT_SHAPES if self.drafts else TARGET_SHAPES


SETS: dict[str, tuple[Row, ...]] = {
    "target": (
        Row("target: triton alone", {"linear_attn_prefill_backend": "triton"}, kind="single"),
        Row("target: flashinfer alone", {"linear_attn_backend": "flashinfer"}, kind="single"),
        Row("target: cutedsl alone", {"linear_attn_backend": "cutedsl"}, kind="single"),
        Row("target: defaults", kind="mixed"),
        Row(
            "target: decode cutedsl, prefill flashinfer",
            {"linear_attn_decode_backend": "cutedsl", "linear_attn_prefill_backend": "flashinfer"},
            kind="mixed",
        ),
    ),
    "drafts": (
        Row(
            "NEXTN: triton alone",
            {**_NEXTN, "linear_attn_prefill_backend": "triton"},
            kind="single",
        ),
        Row(
            "NEXTN: flashinfer alone",
            {**_NEXTN, "linear_attn_backend": "flashinfer"},
            kind="single",
        ),
        Row("NEXTN: defaults", _NEXTN, kind="mixed"),
        Row("NEXTN tree, topk 2: defaults", _TREE),
        Row("STANDALONE: defaults", _STANDALONE, dense_draft=True),
    ),
    # Not every machine can: FlashInfer's attention has to compile there, fa3 has to be installed.
    "attention": tuple(
        Row(
            f"NEXTN: draft attention {name}",
            {**_NEXTN, "speculative_draft_attention_backend": name},
        )
        for name in ("flashinfer", "fa3")
    ),
}
DEFAULT_SETS = ("target", "drafts")


def row_named(name: str) -> Row:
    """Raises KeyError for an unknown name."""
    return {row.name: row for rows in SETS.values() for row in rows}[name]
