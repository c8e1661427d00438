"""Starts engine processes by fork where that is safe, sparing them their own imports.

Most of an engine's start is importing SGLang, once in the parent and once more in every spawned
child. A forked child inherits the modules together with the platform's hooks. Fork copies only
the calling thread, so a lock that another thread holds would stay locked in the child for ever:
fork is used only while the process has exactly one thread, native ones counted.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
from collections.abc import Iterator
from typing import Any, Literal

logger = logging.getLogger(__name__)

StartMethod = Literal["fork", "spawn"]


def thread_count() -> int:
    """Threads of this process, native ones included (Linux; 2 where it cannot be known)."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 2


def choose_start_method(dp_size: int, threads: int) -> StartMethod:
    """Fork for a single-threaded parent without data parallelism.

    With dp > 1 SGLang's controller process starts the schedulers from one thread each, so there
    the children must be spawned.
    """
    return "fork" if dp_size == 1 and threads == 1 else "spawn"


@contextlib.contextmanager
def engine_processes(dp_size: int) -> Iterator[StartMethod]:
    """Within the block, an Engine that is constructed starts its processes by the best method.

    SGLang forces ``spawn`` while it configures itself, so its call is intercepted; the previous
    method is restored afterwards.
    """
    method = choose_start_method(dp_size, thread_count())
    logger.info("engine processes start by %s", method)
    if method == "spawn":
        yield method
        return
    set_start_method = multiprocessing.set_start_method
    previous = multiprocessing.get_start_method(allow_none=True)

    def use_fork(requested: str | None, force: bool = False) -> None:
        set_start_method("fork", force=True)

    patched: Any = multiprocessing
    patched.set_start_method = use_fork
    try:
        yield method
    finally:
        patched.set_start_method = set_start_method
        set_start_method(previous, force=True)
