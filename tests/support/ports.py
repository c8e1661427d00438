"""Free loopback ports that two callers of one test run never share."""

from __future__ import annotations

import random
import socket

# The runtime parses DYN_SYSTEM_PORT as a signed 16-bit number, so ports end at 32767; that range
# is also the one from which the kernel hands out no ports to outgoing connections.
_LOWEST, _HIGHEST = 20000, 32000
_given: set[int] = set()


def free_port() -> int:
    """A TCP port that was free on the wildcard address a moment ago."""
    for _ in range(500):
        port = random.randint(_LOWEST, _HIGHEST)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError(f"no free port between {_LOWEST} and {_HIGHEST} in 500 attempts")
