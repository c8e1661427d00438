from __future__ import annotations

import importlib

import pytest
from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError
from sglang_worker.workers.table import ROWS, check_served, is_served


@pytest.mark.parametrize("kind", list(ROWS))
def test_every_served_type_has_a_module_that_builds_it(kind: WorkerType) -> None:
    assert callable(importlib.import_module(ROWS[kind].module).build)


@pytest.mark.parametrize("kind", [kind for kind in WorkerType if not is_served(kind)])
def test_a_type_that_is_not_served_is_refused_by_name(kind: WorkerType) -> None:
    with pytest.raises(ConfigError, match=kind.value):
        check_served(kind)
