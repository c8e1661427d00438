"""Free loopback ports that two callers of one test run never share."""

from __future__ import annotations

import os
import random

from sglang_worker.config import free_ports

# Below the ports from which engines choose theirs (`config.free_ports`): what a test opens must not
# be what an engine has chosen and opens only later.
_LOWEST, _HIGHEST = 17000, free_ports.LOWEST - 1
# Two processes of one stage (tests.run) take theirs from different halves.
if lane := os.environ.get("WORKER_TEST_LANE"):
    _HALF = (_HIGHEST + 1 - _LOWEST) // 2
    _LOWEST += int(lane) * _HALF
    _HIGHEST = _LOWEST + _HALF - 1
_given: set[int] = set()


def free_port() -> int:
    """A TCP port that was free on the wildcard address a moment ago."""
    return free_block(1)


def free_block(count: int) -> int:
    """The first of ``count`` such ports in a row, for programs that derive ports from one."""
    for _ in range(500):
        block = range((first := random.randint(_LOWEST, _HIGHEST - count + 1)), first + count)
        if _given.isdisjoint(block) and all(map(free_ports.is_free, block)):
            _given.update(block)
            return first
    raise RuntimeError(f"no {count} free ports between {_LOWEST} and {_HIGHEST} in 500 attempts")
