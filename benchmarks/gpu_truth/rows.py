"""The rows of the truth table: six settings of the linear-attention flags, three kinds of draft."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SETTINGS: dict[str, dict[str, str]] = {
    "none": {},
    "prefill-triton": {"linear_attn_prefill_backend": "triton"},
    "decode-flashinfer": {"linear_attn_decode_backend": "flashinfer"},
    "base-cutedsl": {"linear_attn_backend": "cutedsl"},
    "verify-cutedsl": {"linear_attn_verify_backend": "cutedsl"},
    "prefill-triton-verify-flashinfer": {
        "linear_attn_prefill_backend": "triton",
        "linear_attn_verify_backend": "flashinfer",
    },
}

_CHAIN = {
    "speculative_num_steps": 2,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 3,
}
DRAFTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "nextn": {"speculative_algorithm": "NEXTN", **_CHAIN},
    "standalone": {"speculative_algorithm": "STANDALONE", **_CHAIN},
}


@dataclass(frozen=True)
class Row:
    draft: str
    setting: str
    options: dict[str, Any] = field(hash=False, default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.draft}.{self.setting}"


def rows(drafts: list[str]) -> list[Row]:
    return [
        Row(draft, setting, {**flags, **DRAFTS[draft]})
        for draft in drafts
        for setting, flags in SETTINGS.items()
    ]


def row_named(name: str) -> Row:
    return next(row for row in rows(list(DRAFTS)) if row.name == name)
