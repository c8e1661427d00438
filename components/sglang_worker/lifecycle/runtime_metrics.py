"""Reads `/metrics` of the runtime's own server in this process: HTTP/1.0 over loopback, no library.

A plain socket per reading: the runtime's server closes idle connections, and a reading takes less
than a millisecond of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

READ_TIMEOUT_S = 2.0
Address = tuple[str, int]


class MetricsUnavailable(ConnectionError):
    """The runtime's server gave no metrics; the message says why."""


async def read_metrics(address: Callable[[], Address | None]) -> str:
    """The Prometheus text. Raises `MetricsUnavailable`, OSError or asyncio.TimeoutError."""
    where = address()
    if where is None:
        raise MetricsUnavailable("the runtime's server has no known address")
    async with asyncio.timeout(READ_TIMEOUT_S):
        return await _get(*where)


async def _get(host: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(_reachable(host), port)
    try:
        writer.write(b"GET /metrics HTTP/1.0\r\nHost: worker\r\n\r\n")
        answer = await reader.read(-1)
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode(errors="replace")
    if " 200" not in status:
        raise MetricsUnavailable(f"the runtime's server answered {status!r}")
    return body.decode()


def _reachable(host: str) -> str:
    """Where to connect to a server that is bound to ``host``."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "[::]": "::1"}.get(host, host.strip("[]"))
