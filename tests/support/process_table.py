"""Finding every process that a test run started, also those that left their group or parent.

After `become_subreaper`, whatever the children of this process leave behind is handed to it instead
of to init, so "all descendants of this process" is complete: schedulers that rewrite their title
(and with it their environment block) and helpers with a session of their own are found too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import msgspec
import psutil
from sglang_worker.demo.processes import adopt_orphans as become_subreaper

__all__ = ["Identity", "alive", "become_subreaper", "descendants", "identify", "kill", "wait_gone"]


class Identity(msgspec.Struct, frozen=True):
    """A process that cannot be confused with a later one of the same number."""

    pid: int
    started_s: float
    command: str


def identify(process: psutil.Process) -> Identity | None:
    try:
        with process.oneshot():
            command = " ".join(process.cmdline()) or process.name()
            return Identity(process.pid, process.create_time(), command[:200])
    except psutil.Error:
        return None


def alive(identity: Identity) -> bool:
    """True while that very process runs; a zombie of ours is reaped and counts as gone."""
    try:
        process = psutil.Process(identity.pid)
        if process.create_time() != identity.started_s:
            return False
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def descendants(pid: int | None = None) -> frozenset[Identity]:
    """Every running descendant of ``pid`` (default: this process), zombies left out."""
    try:
        children = psutil.Process(pid or os.getpid()).children(recursive=True)
    except psutil.Error:
        return frozenset()
    found = (identify(child) for child in children)
    return frozenset(one for one in found if one is not None and alive(one))


def wait_gone(identities: Iterable[Identity], deadline_s: float) -> frozenset[Identity]:
    """Waits until all have ended; returns those that still run at the deadline."""
    end = time.monotonic() + deadline_s
    left = frozenset(one for one in identities if alive(one))
    while left and time.monotonic() < end:
        time.sleep(0.02)
        left = frozenset(one for one in left if alive(one))
    return left


def kill(identities: Iterable[Identity]) -> None:
    """SIGKILL for all; returns when they are gone."""
    doomed = list(identities)
    for one in doomed:
        if alive(one):
            try:
                psutil.Process(one.pid).kill()
            except psutil.Error:
                continue
    wait_gone(doomed, deadline_s=5.0)
