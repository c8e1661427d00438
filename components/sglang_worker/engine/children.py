"""Child processes that never outlive the worker, however the worker ends.

The kernel is asked to kill a child when its parent dies (``PR_SET_PDEATHSIG``). SGLang's processes
ask for it too, but only after their imports, so a worker killed during startup would leave
children behind. `EntryPoint` asks while it is being unpickled, which under spawn is the first
thing that happens in the new process, before the arguments pull SGLang in.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

PR_SET_PDEATHSIG = 1
# Exit status of a child that finds its parent already gone; nobody is left to read it.
ORPHANED = 1


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when ``parent_pid`` dies; end at once if it already has.

    The death signal is tied to the *thread* that created the process, so children are started
    from the worker's main thread only.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # The parent may have died between fork and prctl: then no signal will ever come.
    if os.getppid() != parent_pid:
        os._exit(ORPHANED)


class EntryPoint:
    """A picklable process target ``module:function`` that is resolved late, in the child.

    The data-parallel controller pickles it once more for its own schedulers; ``__reduce__`` then
    records the controller as the parent, which is right.
    """

    def __init__(self, module: str, function: str) -> None:
        self.module = module
        self.function = function
        self.owner_pid = os.getpid()

    def __reduce__(self) -> tuple[Callable[..., EntryPoint], tuple[str, str, int]]:
        return _arrive_in_child, (self.module, self.function, os.getpid())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Under fork nothing was unpickled, so this is the first statement of the child.
        if os.getpid() != self.owner_pid:
            # Not getppid(): when the worker died in between, that is somebody else already.
            die_with_parent(self.owner_pid)
            _settle_signals()
        return getattr(importlib.import_module(self.module), self.function)(*args, **kwargs)


def _arrive_in_child(module: str, function: str, parent_pid: int) -> EntryPoint:
    if os.getpid() != parent_pid:
        die_with_parent(parent_pid)
        _settle_signals()
    return EntryPoint(module, function)


def _settle_signals() -> None:
    """SGLang's processes expect the default handlers; a forked child inherits the worker's.

    SIGINT is ignored: a Ctrl-C reaches the whole foreground group, and the worker alone decides
    when its engine stops.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def kill_trees(pids: Iterable[int], wait_s: float = 10.0) -> list[int]:
    """SIGKILL the processes and their descendants; returns the pids still alive after ``wait_s``.

    Only the given trees are touched: the worker has other children (the system listener).
    """
    import psutil

    doomed: dict[int, psutil.Process] = {}
    for pid in pids:
        try:
            root = psutil.Process(pid)
            members = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        doomed.update({process.pid: process for process in members})
    for process in doomed.values():
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + wait_s
    alive = list(doomed.values())
    while alive and time.monotonic() < deadline:
        _, alive = psutil.wait_procs(alive, timeout=0.05)
        alive = [process for process in alive if not _is_zombie(process)]
    return [process.pid for process in alive]


def _is_zombie(process: Any) -> bool:
    """Dead, and only not yet collected: grandchildren are left to whoever adopted them."""
    import psutil

    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
