from __future__ import annotations

from sglang_worker.runners.report import Source
from sglang_worker.runners.sources import Leaves, resolve_sources


def sources(typed: Leaves, published: Leaves | None = None, default: str | None = None) -> dict:
    found = resolve_sources(typed, published or typed, default)
    return {"decode": found.decode, "prefill": found.prefill, "verify": found.verify}


def test_without_flags_base_chooses_and_verify_follows_the_rule() -> None:
    assert sources(Leaves(base="triton")) == {
        "decode": Source.BASE,
        "prefill": Source.BASE,
        "verify": Source.RULE,
    }


def test_the_automatic_default_chooses_prefill_alone() -> None:
    found = sources(Leaves(base="triton"), default="flashinfer")
    assert found["prefill"] is Source.AUTO_DEFAULT
    assert found["decode"] is Source.BASE


def test_a_flag_beats_the_automatic_default() -> None:
    typed = Leaves(base="triton", prefill="triton")
    assert sources(typed, default="flashinfer")["prefill"] is Source.FLAG


def test_each_flag_is_named_for_its_phase() -> None:
    typed = Leaves(base="triton", decode="flashinfer", prefill="triton", verify="triton")
    assert set(sources(typed).values()) == {Source.FLAG}


def test_what_the_resolver_declared_is_not_the_operators() -> None:
    typed, published = Leaves(base="triton"), Leaves(base="triton", decode="flashinfer")
    assert sources(typed, published)["decode"] is Source.RESOLVER


def test_a_flag_that_the_resolver_replaced_counts_as_the_resolvers() -> None:
    typed = Leaves(base="triton", verify="flashinfer")
    published = Leaves(base="triton", verify="triton")
    assert sources(typed, published)["verify"] is Source.RESOLVER


def test_a_base_that_the_resolver_replaced_counts_as_the_resolvers() -> None:
    found = sources(Leaves(base="triton"), Leaves(base="intel_xpu"))
    assert found["decode"] is Source.RESOLVER
    assert found["prefill"] is Source.RESOLVER
