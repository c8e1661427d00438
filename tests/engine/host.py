"""A function that lives in a process of its own and is asked over a pipe."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

TAIL_BYTES = 4000


class HostError(AssertionError):
    """The process failed or did not answer; the message carries the end of its log."""


class Host:
    """Runs ``serve(pipe, *args)`` in a new process; `ask` sends a message and waits.

    ``serve`` sends one message when it is ready, then answers each message; it ends on None or
    when this side closes.
    """

    def __init__(
        self,
        context: Any,
        serve: Callable[..., None],
        args: tuple[Any, ...],
        log: Path,
        start_timeout_s: float,
    ) -> None:
        self._log = log
        self._pipe, other = multiprocessing.Pipe()
        self._process = context.Process(target=_run, args=(serve, other, args, str(log)))
        self._process.start()
        other.close()
        self._receive(start_timeout_s)

    def ask(self, message: Any, timeout_s: float = 120.0) -> Any:
        self._pipe.send(message)
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> Any:
        try:
            if not self._pipe.poll(timeout_s):
                raise HostError(f"no answer within {timeout_s} s\n{self._tail()}")
            verdict, value = self._pipe.recv()
        except EOFError:
            raise HostError(f"the process ended\n{self._tail()}") from None
        if verdict == "error":
            raise HostError(f"{value}\n{self._tail()}")
        return value

    def _tail(self) -> str:
        return self._log.read_bytes()[-TAIL_BYTES:].decode(errors="replace")

    def close(self) -> None:
        if self._process.is_alive():
            try:
                self._pipe.send(None)
            except OSError:
                pass
        self._pipe.close()
        self._process.join(20)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _run(serve: Callable[..., None], pipe: Any, args: tuple[Any, ...], log: str) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    serve(pipe, *args)


def answer_all(pipe: Any, handle: Callable[[Any], Any]) -> None:
    """Answers messages with ``handle(message)`` until None or the end of the pipe."""
    while True:
        try:
            message = pipe.recv()
        except EOFError:
            return
        if message is None:
            return
        try:
            reply = ("ok", handle(message))
        except Exception:
            reply = ("error", traceback.format_exc())
        pipe.send(reply)
