"""Starting a gateway's process. It is spawned before the engine starts and imports meanwhile."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.system.child_process import keep_out_of_forks

MODULE = "sglang_worker.gateway.child"
EXIT_PATIENCE_S = 5.0


class GatewayProcess:
    """One gateway's process and the main process's end of the pair."""

    def __init__(
        self,
        index: int,
        process: subprocess.Popen[bytes],
        pair: socket.socket,
        environ: Mapping[str, str],
    ) -> None:
        self.index = index
        self.pair = pair
        self.environ = environ
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self._process.poll()

    def send(self, signum: int) -> None:
        self._process.send_signal(signum)

    def end(self) -> None:
        """Kill it if it still runs, and reap it. Safe to call twice."""
        if self.exit_code is None:
            self.send(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_PATIENCE_S)
        self.pair.close()


def own_variables(config: WorkerConfig, index: int) -> dict[str, str]:
    """In which variables the gateway's environment differs from the main process's.

    With ``--metadata-port P`` gateway i's runtime server takes P + i, because the model card of
    each instance points to its own; without it each picks a free port.
    """
    if config.system.port is None:
        return {"DYN_SYSTEM_PORT": "-1"}
    port = config.system.metadata_port
    return {"DYN_SYSTEM_PORT": str(port + index if port else 0)}


def spawn(config: WorkerConfig, index: int, environ: Mapping[str, str]) -> GatewayProcess:
    """From the main thread: the kernel ends the gateway when the thread that started it ends.

    Starts no thread, so the engine's processes may still be forked afterwards.
    """
    theirs_environ = {**environ, **own_variables(config, index)}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    keep_out_of_forks(ours)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(theirs.fileno()), str(os.getpid())],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            env=theirs_environ,
            # A Ctrl-C reaches the whole foreground group; the main process alone decides.
            start_new_session=True,
        )
    return GatewayProcess(index, process, ours, theirs_environ)


def spawn_all(config: WorkerConfig) -> tuple[GatewayProcess, ...]:
    """None for a worker that serves by itself."""
    if config.gateway_workers <= 1:
        return ()
    started: list[GatewayProcess] = []
    try:
        for index in range(config.gateway_workers):
            started.append(spawn(config, index, os.environ))
    except BaseException:
        end_all(started)
        raise
    return tuple(started)


def end_all(processes: Sequence[GatewayProcess]) -> None:
    for one in processes:
        one.end()


def changed(
    now: Mapping[str, str], then: Mapping[str, str], ours: Mapping[str, str]
) -> dict[str, str]:
    """Variables of ``now`` that ``then`` lacks or has otherwise, but for a gateway's own."""
    return {name: text for name, text in now.items() if then.get(name) != text and name not in ours}
