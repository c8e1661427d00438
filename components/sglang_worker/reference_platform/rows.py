"""The copy with which attention data parallelism gathers and scatters tokens (`dp_attention`)."""

from __future__ import annotations

import torch


def copy_rows(
    dst: torch.Tensor,
    src: torch.Tensor,
    dim: int,
    offset: torch.Tensor,
    count: torch.Tensor,
    offset_in_source: bool,
) -> None:
    """``count`` rows, beginning at ``offset`` in one of the two; what does not fit is left out.

    ``offset`` and ``count`` are tensors of one element, so that a kernel reads them on its device.
    """
    if dim != 0:
        raise ValueError(f"rows lie along dimension 0, not {dim}")
    start, rows = int(offset), int(count)
    if offset_in_source:
        src = src[start:]
    else:
        dst = dst[start:]
    rows = min(rows, src.shape[0], dst.shape[0])
    dst[:rows].copy_(src[:rows])
