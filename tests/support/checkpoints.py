"""The demo checkpoints, made once per checkout and shared by all test runs."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tests.support.environment import REPOSITORY

CACHE = REPOSITORY / ".cache" / "checkpoints"


def checkpoint(name: str) -> Path:
    """The folder of a demo checkpoint ("gdn", "dense", "kda", …), made when it is missing.

    A lock file keeps two test runs from writing the same folder; making one takes seconds.
    """
    from sglang_worker.demo.checkpoints import ensure

    folder = Path(os.environ.get("SGLANG_WORKER_TEST_CHECKPOINTS", CACHE))
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ensure(folder, [name])
    return folder / name
