"""Who chose each phase: SGLang's precedence (flag > automatic default > base) read backwards."""

from __future__ import annotations

import msgspec

from sglang_worker.runners.report import Source, Sources


class Leaves(msgspec.Struct, frozen=True):
    """The four process-wide linear-attention settings, as typed or as published."""

    base: str | None = None
    decode: str | None = None
    prefill: str | None = None
    verify: str | None = None


def resolve_sources(typed: Leaves, published: Leaves, prefill_default: str | None) -> Sources:
    """Sources of one runner's stamp.

    `typed` is what the operator set (SGLang's record), `published` what the schedulers read after
    SGLang's resolver, `prefill_default` the automatic default that this runner was given.
    """
    base = Source.BASE if published.base == typed.base else Source.RESOLVER
    automatic = base if prefill_default is None else Source.AUTO_DEFAULT
    return Sources(
        decode=_of_leaf(typed.decode, published.decode, otherwise=base),
        prefill=_of_leaf(typed.prefill, published.prefill, otherwise=automatic),
        verify=_of_leaf(typed.verify, published.verify, otherwise=Source.RULE),
    )


def _of_leaf(typed: str | None, published: str | None, *, otherwise: Source) -> Source:
    if published is None:
        return otherwise
    return Source.FLAG if typed == published else Source.RESOLVER
