"""Ports for what an engine opens later, in another process.

The kernel hands ports from `ip_local_port_range` to every outgoing connection, so a port from there
may be gone by the time the engine opens it. These lie below it; SGLang takes its own from the same
window (0.5.23 `get_free_port_below_ephemeral`).
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from pathlib import Path

from sglang_worker.errors import ConfigError

LOWEST, HIGHEST = 22000, 29999
_KERNEL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


def free_port() -> int:
    """Nobody has it on any IPv4 interface now. Raises ConfigError when none is found."""
    return free_block(1)


def free_block(count: int) -> int:
    """The first of ``count`` free ports in a row."""
    last = min(HIGHEST, _lowest_of_kernel() - 1) - count + 1
    starts: Iterable[int]
    if last < LOWEST:
        # Where the kernel's range begins below ours, there is no better choice than its own.
        starts = (_from_the_kernel() for _ in range(_ATTEMPTS))
    else:
        starts = random.sample(range(LOWEST, last + 1), min(_ATTEMPTS, last + 1 - LOWEST))
    for start in starts:
        if all(is_free(port) for port in range(start, start + count)):
            return start
    raise ConfigError(f"found no {count} free ports in a row between {LOWEST} and {HIGHEST}")


def is_free(port: int) -> bool:
    """Whether nothing is bound to it, listening or not."""
    with socket.socket() as probe:
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def _lowest_of_kernel() -> int:
    try:
        return int(_KERNEL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return HIGHEST + 1


def _from_the_kernel() -> int:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return int(probe.getsockname()[1])
