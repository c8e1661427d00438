"""Starting and ending the listener's child process; the sockets that only we and it may hold."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable

import msgspec

from sglang_worker.system.child import IGNORED_BY_CHILD, ChildSettings

logger = logging.getLogger(__name__)

_EXIT_PATIENCE_S = 5.0


class ChildProcess:
    """One child: its process and our end of the pair."""

    def __init__(self, process: subprocess.Popen[bytes], pair: socket.socket) -> None:
        self._process = process
        self.pair = pair
        self.torn = False
        """A frame went out in part before the loop ran: this pair can carry nothing more."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    async def kill(self) -> None:
        """End it and wait until it is gone: from then on it can answer nothing any more."""
        # SIGKILL also ends a stopped process; anything milder would wait for a SIGCONT.
        if not self.ended:
            self._process.send_signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(self._process.wait, _EXIT_PATIENCE_S)

    def send_now(self, frame: bytes) -> None:
        """Send before a loop runs: the socket's buffer takes small frames without blocking.

        What cannot be sent is dropped: `SystemListener.attach` sends the whole state again.
        """
        if self.torn:
            return
        try:
            self.torn = self.pair.send(frame) != len(frame)
        except OSError as error:
            logger.debug("system listener: state not sent before attach: %s", error)

    def leave(self, patience_s: float) -> None:
        """Close the pair, which the child takes as the order to go, and reap it."""
        with contextlib.suppress(OSError):
            # A loop that no longer runs may hold another handle: closing ours would not be enough.
            self.pair.shutdown(socket.SHUT_RDWR)
        self.pair.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def spawn(
    listening: socket.socket,
    settings: Callable[[int, int], ChildSettings],
    first_frame: bytes,
) -> ChildProcess:
    """Start a child on ``listening``; ``first_frame`` (the state) is waiting for it.

    Starts no thread and runs no Python code between fork and exec, so it is safe before SGLang
    forks its schedulers and after the runtime's threads exist.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    keep_out_of_forks(ours)
    with theirs:
        ours.sendall(first_frame)
        described = msgspec.json.encode(settings(listening.fileno(), theirs.fileno())).decode()
        # A blocked signal mask is inherited through exec: a SIGTERM to the whole container cannot
        # end the child before it has come to ignore it. What is sent to us meanwhile stays pending.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED_BY_CHILD)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "sglang_worker.system.child", described],
                pass_fds=(listening.fileno(), theirs.fileno()),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ours.setblocking(False)
    return ChildProcess(process, ours)


_private: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def keep_out_of_forks(held: socket.socket) -> None:
    """Close ``held`` in every process forked from now on.

    SGLang's schedulers may be forked. One that outlives the worker would otherwise hold the port
    and keep the pair open, and the child would never learn that the worker is dead.
    """
    _private.add(held)


def _close_in_fork() -> None:
    for held in list(_private):
        held.close()


os.register_at_fork(after_in_child=_close_in_fork)
