from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.lifecycle.deployment import Deployment


@pytest.fixture
def deployment(tmp_path: Path, tiny_model: Path) -> Iterator[Deployment]:
    with Deployment(tmp_path) as started:
        started.model = tiny_model
        yield started
