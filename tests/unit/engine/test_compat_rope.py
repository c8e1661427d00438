"""FlashInfer's rotary embedding where it can be built, and where it cannot: SGLang's own module,
with another kernel in FlashInfer's place."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from sglang_worker.engine import compat_rope

TOKENS, HEADS, SIZE = 5, 2, 8


@pytest.fixture
def rope(monkeypatch: pytest.MonkeyPatch) -> Any:
    from sglang.multimodal_gen.runtime.layers.rotary_embedding import utils

    monkeypatch.setattr(utils, compat_rope.KERNEL, None)
    return utils


def arguments(seed: int) -> dict[str, Any]:
    """As SGLang hands them to the kernel."""
    import torch

    chance = torch.Generator().manual_seed(seed)
    return {
        "positions": torch.arange(TOKENS),
        "query": torch.randn(TOKENS, HEADS * SIZE, generator=chance),
        "key": torch.randn(TOKENS, HEADS * SIZE, generator=chance),
        "head_size": SIZE,
        "cos_sin_cache": torch.randn(TOKENS, SIZE, generator=chance),
        "is_neox": False,
    }


def fails_to_build(**_: Any) -> None:
    raise RuntimeError("Ninja build failed. Ninja output:\nerror: cuda::fast_mod_div is unknown")


def test_a_kernel_that_cannot_be_built_is_replaced_by_sglangs_pytorch_version(
    rope: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = arguments(1)
    shaped = {name: given[name].view(1, TOKENS, HEADS, SIZE).clone() for name in ("query", "key")}
    more = {name: given[name] for name in ("positions", "cos_sin_cache", "is_neox", "head_size")}
    expected = rope.apply_flashinfer_rope_qk_inplace(shaped["query"], shaped["key"], **more)
    assert not expected[0].equal(shaped["query"]), "nothing was rotated"

    monkeypatch.setattr(rope, compat_rope.KERNEL, fails_to_build)
    compat_rope.guard_first_call(rope)
    with caplog.at_level(logging.WARNING):
        getattr(rope, compat_rope.KERNEL)(**given)
    for name, turned in zip(("query", "key"), expected, strict=True):
        assert given[name].equal(turned.reshape(TOKENS, HEADS * SIZE))
    assert getattr(rope, compat_rope.KERNEL) is None, "later calls do not try again"
    assert "cannot be built here" in caplog.text
    assert "Ninja build failed" in caplog.text


def test_a_kernel_that_works_stays(rope: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def works(**given: Any) -> None:
        calls.append(given["head_size"])

    monkeypatch.setattr(rope, compat_rope.KERNEL, works)
    compat_rope.guard_first_call(rope)
    getattr(rope, compat_rope.KERNEL)(**arguments(2))
    assert calls == [SIZE]
    assert getattr(rope, compat_rope.KERNEL) is works


@pytest.mark.parametrize("kind", ["OutOfMemoryError", "AcceleratorError", "RuntimeError"])
def test_what_another_kernel_would_not_help_is_raised(
    rope: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    import torch

    failure = getattr(torch, kind, RuntimeError)("CUDA error: an illegal memory access")

    def fails(**_: Any) -> None:
        raise failure

    monkeypatch.setattr(rope, compat_rope.KERNEL, fails)
    compat_rope.guard_first_call(rope)
    with pytest.raises(type(failure), match="CUDA error"):
        getattr(rope, compat_rope.KERNEL)(**arguments(3))


def test_without_the_kernel_there_is_nothing_to_guard(rope: Any) -> None:
    compat_rope.guard_first_call(rope)
    assert getattr(rope, compat_rope.KERNEL) is None
