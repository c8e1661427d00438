"""SGLang's generator without FlashInfer's rotary embedding, where that cannot be built.

Read in SGLang 0.5.23 ``multimodal_gen/runtime/layers/rotary_embedding/utils.py``: on CUDA several
image pipelines rotate queries and keys with a kernel that FlashInfer compiles at its first call. A
FlashInfer newer than the machine's CUDA headers fails there, and with it every request. SGLang has
a PyTorch version of its own for machines without FlashInfer; no setting chooses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

KERNEL = "flashinfer_apply_rope_inplace"

logger = logging.getLogger(__name__)


def guard_first_call(module: Any = None) -> None:
    """Let the first call decide: a kernel that works stays, one that cannot be built is replaced
    by SGLang's PyTorch version, with a warning. ``module``: SGLang's, unless a test has another.
    """
    if module is None:
        try:
            from sglang.multimodal_gen.runtime.layers.rotary_embedding import utils
        except ImportError as missing:
            logger.debug("this SGLang keeps its rotary embedding elsewhere: %s", missing)
            return
        module = utils
    kernel = getattr(module, KERNEL, None)
    if kernel is not None:
        setattr(module, KERNEL, _deciding(module, kernel))


def _deciding(module: Any, kernel: Callable[..., Any]) -> Callable[..., None]:
    """In place of the kernel: ``query`` and ``key`` (tokens, heads * head_size) are overwritten."""

    def first(*, query: Any, key: Any, head_size: int, **more: Any) -> None:
        try:
            kernel(query=query, key=key, head_size=head_size, **more)
        except Exception as failure:
            if not _is_of_the_build(failure):
                raise
            logger.warning(
                "FlashInfer's rotary embedding cannot be built here, SGLang's PyTorch version runs "
                "instead, which is slower: %s",
                _first_line(failure),
            )
            setattr(module, KERNEL, None)
        else:
            setattr(module, KERNEL, kernel)
            return
        rows = [one.view(1, one.shape[0], -1, head_size) for one in (query, key)]
        rotated = module.apply_flashinfer_rope_qk_inplace(*rows, head_size=head_size, **more)
        for one, turned in zip((query, key), rotated, strict=True):
            one.copy_(turned.reshape(one.shape))

    return first


def _is_of_the_build(failure: Exception) -> bool:
    """Not what CUDA reports of memory or of an earlier kernel: another one would not help."""
    import torch

    cuda = tuple(
        kind
        for name in ("OutOfMemoryError", "AcceleratorError")
        if isinstance(kind := getattr(torch, name, None), type)
    )
    return not isinstance(failure, cuda) and "CUDA error" not in str(failure)


def _first_line(failure: Exception) -> str:
    lines = str(failure).strip().splitlines()
    return f"{type(failure).__name__}: {lines[0][:300] if lines else ''}"
