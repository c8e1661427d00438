"""Startup phases from processes other than the worker's main one.

While SGLang's engine loads, the worker's main thread is blocked and no other thread may exist
(the scheduler is forked). So scheduler processes send their phase as one datagram straight to the
listener's child, over an abstract Unix socket whose random name the worker hands to them: nothing
to clean up, and it works on a read-only root filesystem.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
from collections.abc import Callable

from sglang_worker.system.state import Phase

VARIABLE = "DYN_SGL_PHASE_SOCKET"
"""Names the socket in the environment of the engine's processes."""


def new_socket_name() -> str:
    """A name nobody can guess: abstract sockets carry no permissions."""
    return f"sglang-worker-phase-{secrets.token_hex(16)}"


def report_phase(socket_name: str | None, phase: Phase) -> None:
    """Tell the listener how far loading has come; without a listener this does nothing.

    Never raises and never blocks: a phase is information, not a step of loading.
    """
    if not socket_name:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.sendto(phase.value.encode(), "\0" + socket_name)
        except OSError:
            # The child is being replaced, or there is none: the next phase will arrive.
            return


class _Receiver(asyncio.DatagramProtocol):
    def __init__(self, report: Callable[[Phase], None]) -> None:
        self._report = report

    def datagram_received(self, data: bytes, _address: object) -> None:
        try:
            phase = Phase(data.decode())
        except ValueError:
            return
        self._report(phase)


async def listen_for_phases(
    socket_name: str | None, report: Callable[[Phase], None]
) -> asyncio.DatagramTransport | None:
    if not socket_name:
        return None
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.setblocking(False)
    receiver.bind("\0" + socket_name)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Receiver(report), sock=receiver)
    return transport
