"""Loads in the router's unit, and when one is worth telling."""

from __future__ import annotations

import msgspec

RESEND_S = 1.0
"""An unchanged load is told again after this long: routers start at any time and forget."""


class Told(msgspec.Struct, frozen=True):
    used_blocks: int
    at_s: float


def blocks_of(tokens: int, page_tokens: int) -> int:
    """Pages that ``tokens`` slots occupy; a page in use counts whole."""
    return -(-tokens // max(1, page_tokens))


class LoadFilter:
    """Which loads to publish: changes at once, the rest every `RESEND_S`."""

    def __init__(self) -> None:
        self._told: dict[int, Told] = {}

    def is_due(self, dp_rank: int, used_blocks: int, now_s: float) -> bool:
        """Remembers the load as told when it is."""
        told = self._told.get(dp_rank)
        if told is not None and told.used_blocks == used_blocks and now_s < told.at_s + RESEND_S:
            return False
        self._told[dp_rank] = Told(used_blocks, now_s)
        return True
