"""Fixtures for all tests, and the check that a test run leaves no process behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.support import process_table
from tests.support.checkpoints import checkpoint as demo_checkpoint
from tests.support.stack import Stack
from tests.support.tiny_model import write_tiny_model


def pytest_configure() -> None:
    """A cancelled run (SIGTERM) ends as Ctrl-C does: by way of fixtures, which stop processes."""
    owner = os.getpid()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != owner:  # a forked child keeps the default: it ends
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)


@pytest.fixture(scope="session", autouse=True)
def _no_process_survives_the_tests() -> Iterator[None]:
    process_table.become_subreaper()
    before = process_table.descendants()
    yield
    left = process_table.wait_gone(process_table.descendants() - before, deadline_s=10.0)
    process_table.kill(left)
    # multiprocessing's resource tracker belongs to this interpreter and ends with it.
    faults = [one for one in left if "resource_tracker" not in one.command]
    assert not faults, "processes outlived the tests: " + "; ".join(
        f"{one.pid} {one.command}" for one in faults
    )


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    """A fresh deployment for one test; share a ``Stack`` in a module fixture where starts cost."""
    with Stack(tmp_path) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def checkpoint() -> Callable[[str], Path]:
    """``checkpoint("gdn")``: the folder of a demo checkpoint, made when needed."""
    return demo_checkpoint


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder for workers without an engine (one token per byte)."""
    return write_tiny_model(tmp_path_factory.mktemp("tiny-model"))
