"""The public listener as the worker sees it: start it, push state, attach the app, close it.

Life: `start` before the engine is loaded (binds the socket, spawns the child, no thread, no loop),
`publish` at any time, `attach` once the worker's loop runs, `close` as the very last step.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

import msgspec

from sglang_worker.config.worker_config import SystemSettings
from sglang_worker.system.access import is_loopback
from sglang_worker.system.app import EngineApp
from sglang_worker.system.child import ChildSettings
from sglang_worker.system.child_process import ChildProcess, keep_out_of_forks, spawn
from sglang_worker.system.http import HttpLimits
from sglang_worker.system.peer import ChildPeer
from sglang_worker.system.phases import new_socket_name
from sglang_worker.system.protocol import Kind, ProtocolFault, StatePush, encode_struct
from sglang_worker.system.public_socket import bind_public
from sglang_worker.system.state import RuntimeAddress, WorkerState

logger = logging.getLogger(__name__)

ACK_TIMEOUT_S = 0.5
START_PATIENCE_S = 5.0
"""For a child that has acknowledged nothing yet: it is starting, a fresh one would be slower."""
HEARTBEAT_S = 0.5
CHILD_PATIENCE_S = 3.0
_RESTART_DELAYS_S = (0.0, 0.1, 0.5, 1.0, 2.0)
_STEADY_AFTER_S = 10.0


class SystemListener:
    """Owns the public socket and the child. All methods belong to the main thread's loop."""

    def __init__(self, settings: SystemSettings, limits: HttpLimits | None = None) -> None:
        self._settings = settings
        self._limits = limits or HttpLimits()
        self._state = WorkerState()
        self._sequence = itertools.count(1)
        self._listening: socket.socket | None = None
        self._child: ChildProcess | None = None
        self._peer: ChildPeer | None = None
        self._app: EngineApp | None = None
        self._replacing = asyncio.Lock()
        self._running: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._quick_ends = 0
        self._spawned_at_s = 0.0
        self._closed = False
        self._details: Callable[[], dict[str, Any]] | None = None
        self.phase_socket = new_socket_name()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port in force; the port is the picked one when 0 was asked for."""
        assert self._listening is not None, "start() comes first"
        name = self._listening.getsockname()
        return str(name[0]), int(name[1])

    @property
    def child_pid(self) -> int:
        assert self._child is not None, "start() comes first"
        return self._child.pid

    @property
    def state(self) -> WorkerState:
        return self._state

    def start(self) -> None:
        """Bind and spawn. Raises ConfigError when the address cannot be had."""
        self._listening = bind_public(self._settings.host, self._settings.port or 0)
        keep_out_of_forks(self._listening)
        self._spawn()
        host, port = self.address
        if self._settings.token_file is None and not is_loopback(host):
            logger.warning(
                "system listener: %s is no loopback address and no token is set: whoever reaches "
                "the port controls this worker; set --system-token-file or restrict the network",
                host,
            )
        logger.info("system listener on http://%s:%d", f"[{host}]" if ":" in host else host, port)

    def publish(self, **changes: Any) -> None:
        """Change fields of the pushed state (see `WorkerState`); nobody waits for the child."""
        self._state = msgspec.structs.replace(self._state, **changes)
        self._push()

    async def publish_acknowledged(self, **changes: Any) -> None:
        """Like `publish`, and return only when no child can show the earlier state any more:
        it has acknowledged within `ACK_TIMEOUT_S` (one that is only starting: within
        `START_PATIENCE_S`), or it was killed and replaced."""
        self._state = msgspec.structs.replace(self._state, **changes)
        sequence = self._push()
        child, peer = self._child, self._peer
        if child is None or peer is None or self._closed:
            return
        patience_s = ACK_TIMEOUT_S if peer.acknowledged else START_PATIENCE_S
        if not await peer.wait_acknowledged(sequence, patience_s):
            await self._replace(child, f"did not acknowledge within {patience_s} s")

    def show_details(self, details: Callable[[], dict[str, Any]]) -> None:
        """From now on every push carries what ``details`` says at that moment; it must be cheap."""
        self._details = details

    def set_runtime_address(self, host: str, port: int) -> None:
        """Where probes, metrics and metadata are forwarded to from now on."""
        self.publish(runtime=RuntimeAddress(host, port))

    async def attach(self, app: EngineApp) -> None:
        """From now on the running loop serves calls and watches over the child."""
        self._app = app
        child = self._child
        assert child is not None, "start() comes first"
        if child.ended or child.torn:
            await self._replace(child, "was lost while the engine loaded")
        else:
            await self._connect(child)
        self._tasks.append(asyncio.get_running_loop().create_task(self._heartbeat()))

    def publish_catalog(self) -> None:
        """Push the app's catalog again after it has changed."""
        if self._app is not None and self._peer is not None:
            self._peer.send(encode_struct(Kind.CATALOG, self._app.catalog()))

    def close(self, patience_s: float = 1.0) -> None:
        """Give the port back and end the child. Idempotent; the last thing before exit."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        if self._peer is not None:
            self._peer.close()
        if self._child is not None:
            self._child.leave(patience_s)
        if self._listening is not None:
            self._listening.close()

    def _push(self) -> int:
        if self._details is not None:
            self._state = msgspec.structs.replace(self._state, details=self._details())
        sequence = next(self._sequence)
        frame = self._state_frame(sequence)
        if self._peer is not None:
            self._peer.send(frame)
        elif self._child is not None:
            self._child.send_now(frame)
        return sequence

    def _state_frame(self, sequence: int) -> bytes:
        return encode_struct(Kind.STATE, StatePush(sequence, time.monotonic(), self._state))

    def _spawn(self) -> ChildProcess:
        assert self._listening is not None
        self._child = spawn(
            self._listening, self._child_settings, self._state_frame(next(self._sequence))
        )
        self._spawned_at_s = time.monotonic()
        return self._child

    def _child_settings(self, listen_fd: int, pair_fd: int) -> ChildSettings:
        return ChildSettings(
            listen_fd=listen_fd,
            pair_fd=pair_fd,
            token_file=self._settings.token_file,
            phase_socket=self.phase_socket,
            http=self._limits,
            buffer_bytes=4 * self._settings.weights_body_limit_bytes,
        )

    async def _connect(self, child: ChildProcess) -> None:
        assert self._app is not None
        self._peer = await ChildPeer.open(child.pair, self._app, self._running)
        self._push()
        self.publish_catalog()
        watch = asyncio.get_running_loop().create_task(self._watch(child, self._peer))
        self._tasks = [task for task in self._tasks if not task.done()] + [watch]

    async def _watch(self, child: ChildProcess, peer: ChildPeer) -> None:
        try:
            await peer.run()
        except (ProtocolFault, OSError) as error:
            logger.warning("system listener: the pair to the child broke: %s", error)
        await self._replace(child, "ended")

    async def _replace(self, child: ChildProcess, why: str) -> None:
        """Exchange ``child`` for a fresh one on the same socket; no-op when that was done."""
        async with self._replacing:
            if self._closed or child is not self._child:
                return
            logger.warning("system listener: child %d %s; replacing it", child.pid, why)
            if self._peer is not None:
                self._peer.close()
                self._peer = None
            await child.kill()
            await self._spawn_again()

    async def _spawn_again(self) -> None:
        steady = time.monotonic() - self._spawned_at_s > _STEADY_AFTER_S
        self._quick_ends = 0 if steady else self._quick_ends + 1
        while not self._closed:
            delay_s = _RESTART_DELAYS_S[min(self._quick_ends, len(_RESTART_DELAYS_S) - 1)]
            await asyncio.sleep(delay_s)
            try:
                await self._connect(self._spawn())
                return
            except OSError as error:
                self._quick_ends += 1
                logger.error("system listener: cannot start a child: %s", error)

    async def _heartbeat(self) -> None:
        """Keep the pushed state fresh, and replace a child that has stopped answering."""
        loop = asyncio.get_running_loop()
        oldest: tuple[int, float] | None = None
        while True:
            before = loop.time()
            await asyncio.sleep(HEARTBEAT_S)
            we_were_late = loop.time() - before > 2 * HEARTBEAT_S
            child, peer = self._child, self._peer
            if child is None or peer is None:
                oldest = None
                continue
            if oldest is not None and peer.acknowledged >= oldest[0]:
                oldest = None
            # A late tick means that this loop was blocked, and acknowledgements wait unread.
            if oldest and not we_were_late and loop.time() - oldest[1] > CHILD_PATIENCE_S:
                oldest = None
                await self._replace(child, f"has not answered for {CHILD_PATIENCE_S} s")
                continue
            sequence = self._push()
            oldest = oldest or (sequence, loop.time())
