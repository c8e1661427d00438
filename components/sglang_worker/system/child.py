"""Entry of the listener's child: ``python -m sglang_worker.system.child <settings as JSON>``.

It owns the public port for as long as the worker lives, imports little so that it answers probes
well under a second after its start, and knows nothing of SGLang, torch or the runtime.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import socket
import sys

import msgspec

from sglang_worker.observability.logs import setup as logs
from sglang_worker.system.access import TokenFile
from sglang_worker.system.frontdoor import FrontDoor
from sglang_worker.system.http import HttpLimits, HttpServer
from sglang_worker.system.link import WorkerLink
from sglang_worker.system.phases import listen_for_phases
from sglang_worker.system.protocol import ProtocolFault

logger = logging.getLogger("sglang_worker.system.child")

LAST_ANSWERS_S = 0.1
IGNORED_BY_CHILD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ChildSettings(msgspec.Struct, frozen=True, kw_only=True):
    listen_fd: int
    pair_fd: int
    token_file: str | None = None
    phase_socket: str | None = None
    http: HttpLimits = HttpLimits()
    buffer_bytes: int = 256 << 20
    """All request bodies together that may be held at one time."""


def main(argv: list[str]) -> int:
    settings = msgspec.json.decode(argv[0], type=ChildSettings)
    # The worker decides when we end, by closing the pair: a terminal's Ctrl-C or a Pod's SIGTERM
    # reaches the whole container, and probes must keep answering while the worker drains.
    for ignored in IGNORED_BY_CHILD:
        signal.signal(ignored, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED_BY_CHILD)
    logs.configure(os.environ)
    _raise_file_limit()
    asyncio.run(_serve_and_leave(settings))
    return 0


async def _serve_and_leave(settings: ChildSettings) -> None:
    await _serve(settings)
    # Not through the loop's teardown: it would report every connection that it cancels.
    os._exit(0)


async def _serve(settings: ChildSettings) -> None:
    listening = socket.socket(fileno=settings.listen_fd)
    pair = socket.socket(fileno=settings.pair_fd)
    reader, writer = await asyncio.open_unix_connection(sock=pair, limit=1 << 20)
    link = WorkerLink(reader, writer)
    tokens = TokenFile(settings.token_file) if settings.token_file else None
    door = FrontDoor(link, tokens, settings.buffer_bytes)
    phases = await listen_for_phases(settings.phase_socket, link.report_phase)
    server = await HttpServer(door.handle, settings.http).serve(listening)
    try:
        await link.run()
    except ProtocolFault as fault:
        logger.error("the worker sent what is no frame, leaving: %s", fault)
    except OSError:
        # The same as end of file: the worker is gone.
        logger.info("the worker is gone")
    finally:
        server.close()
        if phases is not None:
            phases.close()
        if link.waiting_calls:
            # Those who waited for the worker hear that it is gone.
            await asyncio.sleep(LAST_ANSWERS_S)


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
