"""Waiting for a drain or a resume: repeat what may be repeated, stop at what cannot succeed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from sglang_worker.ctl.client import Reply
from sglang_worker.ctl.codes import Code, CtlError
from sglang_worker.ctl.display import describe

POLL_S = 0.2
RETRY_S = 1.0  # a drain or resume that discovery did not confirm is asked for again
CALL_S = 15.0  # above the worker's own patience with discovery


class Client(Protocol):
    def get(self, path: str, timeout_s: float | None = None) -> Reply: ...

    def post(self, path: str, timeout_s: float | None = None) -> Reply: ...


class Line(Protocol):
    def show(self, text: str, elapsed_s: float) -> None: ...


class Waiter:
    """Raises CtlError with TIMEOUT after ``timeout_s``, whatever it is waiting for."""

    def __init__(
        self,
        client: Client,
        timeout_s: float,
        line: Line,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self._line = line
        self._clock = clock
        self._sleep = sleep
        self._began_s = clock()
        self._last: Reply | None = None

    def ask(self, path: str) -> Reply:
        """POST until the worker accepts. 503 means that discovery has not confirmed: again."""
        while True:
            reply = self._client.post(path, self._call_s())
            if reply.status != 503:
                return reply
            self._show(reply)
            self._pause(RETRY_S)

    def until(self, wanted: str, passing: frozenset[str]) -> Reply:
        """Poll the status until the state is ``wanted``. A state outside ``passing`` cannot lead
        there any more: CtlError with REFUSED."""
        while True:
            reply = self._client.get("/engine/status", self._call_s())
            self._show(reply)
            state = reply.body.get("state")
            if reply.status == 200 and state == wanted:
                return reply
            # 503: the listener was just replaced and knows nothing yet.
            if reply.status != 503 and (reply.status != 200 or state not in passing):
                problem = reply.problem if reply.status != 200 else f"the worker is {state}"
                raise CtlError(Code.REFUSED, f"not {wanted}: {problem}")
            self._pause(POLL_S)

    def until_settled(self, passing: frozenset[str]) -> Reply:
        """Poll the status until its state is none of ``passing``."""
        while True:
            reply = self._client.get("/engine/status", self._call_s())
            self._show(reply)
            if reply.status != 503 and reply.body.get("state") not in passing:
                return reply
            self._pause(POLL_S)

    def until_ready(self) -> None:
        """Poll `/ready` until 200."""
        while (reply := self._client.get("/ready", self._call_s())).status != 200:
            self._line.show("serving: not ready yet", self._elapsed_s())
            self._last = reply
            self._pause(POLL_S)

    def _show(self, reply: Reply) -> None:
        self._last = reply
        text = describe(reply.body) if "state" in reply.body else reply.problem
        self._line.show(text, self._elapsed_s())

    def _elapsed_s(self) -> float:
        return self._clock() - self._began_s

    def _call_s(self) -> float:
        return min(CALL_S, max(0.1, self._timeout_s - self._elapsed_s()))

    def _pause(self, seconds: float) -> None:
        left_s = self._timeout_s - self._elapsed_s()
        if left_s <= 0:
            last = describe(self._last.body) if self._last else "no answer"
            raise CtlError(Code.TIMEOUT, f"not done after {self._timeout_s:g} s, last: {last}")
        self._sleep(min(seconds, left_s))
