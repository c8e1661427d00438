"""The rows of the kernel table: what a user can choose for target and draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

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
    """``options`` are arguments of `sgl.Engine`; ``dense_draft`` adds the second model."""

    name: str
    options: Mapping[str, Any] = {}
    dense_draft: bool = False


ROWS = (
    Row("target: defaults"),
    Row("target: prefill triton", {"linear_attn_prefill_backend": "triton"}),
    Row("target: decode flashinfer", {"linear_attn_decode_backend": "flashinfer"}),
    Row("target: base cutedsl", {"linear_attn_backend": "cutedsl"}),
    Row(
        "target: decode cutedsl, prefill flashinfer",
        {"linear_attn_decode_backend": "cutedsl", "linear_attn_prefill_backend": "flashinfer"},
    ),
    Row("NEXTN: defaults", _NEXTN),
    Row("NEXTN: decode flashinfer", {**_NEXTN, "linear_attn_decode_backend": "flashinfer"}),
    Row(
        "NEXTN: draft attention flashinfer",
        {**_NEXTN, "speculative_draft_attention_backend": "flashinfer"},
    ),
    Row("NEXTN tree, topk 2: defaults", _TREE),
    Row("STANDALONE: defaults", _STANDALONE, dense_draft=True),
)


def row_named(name: str) -> Row:
    """Raises StopIteration for an unknown name."""
    return next(row for row in ROWS if row.name == name)
