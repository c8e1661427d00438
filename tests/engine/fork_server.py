"""The fixture `fork_server`: stops the process that all engines of a run are forked from."""

from __future__ import annotations

import multiprocessing.forkserver
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def fork_server() -> Iterator[None]:
    """Stops multiprocessing's fork server after everything that was forked from it.

    Every forked process holds the descriptor whose closing ends the server, so stopping it while
    another fixture's engine lives would wait for that engine for ever.
    """
    yield
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
