"""Tests that need CUDA: everything here is skipped without it."""

from __future__ import annotations

from pathlib import Path

import pytest


def _cuda() -> bool:
    import torch

    return bool(torch.cuda.is_available())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    if here and not _cuda():
        for item in here:
            item.add_marker(pytest.mark.skip(reason="needs CUDA"))
