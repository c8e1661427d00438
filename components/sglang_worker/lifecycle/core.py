"""The one holder of the machine's state on the event loop: applies events, publishes, withdraws.

`controller` and `engine_operations` are written on top of it. Every change of state goes through
`LifecycleCore.apply`, synchronously, so what is published is always what the machine decided last.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from sglang_worker.lifecycle.completion import CompletionCheck
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.history import History
from sglang_worker.lifecycle.machine import Lifecycle, Step, transition
from sglang_worker.lifecycle.ports import StatePublisher
from sglang_worker.lifecycle.registration import RegistrationOwner, Written
from sglang_worker.lifecycle.states import Answer, Ask, Effect, Event, Outcome, Reason, Status

logger = logging.getLogger(__name__)

T = TypeVar("T")

# A gate that is closed by hand before its deadline is noticed within this time.
CLOSED_POLL_S = 0.05


class CoreSettings(msgspec.Struct, frozen=True):
    """``discovery_timeout_s`` bounds how long a call waits for discovery, never the write itself:
    a write that outlives it goes on and is still the owner's."""

    worker_id: str
    grace_s: float = 5.0
    can_drain: bool = True
    discovery_timeout_s: float = 10.0


class LifecycleCore:
    def __init__(
        self,
        settings: CoreSettings,
        gate: AdmissionGate,
        registration: RegistrationOwner,
        completion: CompletionCheck,
        publisher: StatePublisher,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.gate = gate
        self.registration = registration
        self.publisher = publisher
        self.clock = clock
        self.life = Lifecycle(grace_s=settings.grace_s, can_drain=settings.can_drain)
        self.completion = completion
        self.history = History(clock())
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watcher: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()

    # --- the machine ------------------------------------------------------------------------------

    def ask(self, ask: Ask, **fields: Any) -> Step:
        return self.apply(Event(ask, self.clock(), in_flight=self.gate.in_flight, **fields))

    def report(self, outcome: Outcome, epoch: int | None = None, **fields: Any) -> Step:
        return self.apply(Event(outcome, self.clock(), epoch, **fields))

    def apply(self, event: Event) -> Step:
        before = self.life
        step = transition(before, event)
        self.life = after = step.next
        self.history.note(after.state, after.reason, event.now_s)
        if after.epoch != before.epoch and self._watcher is not None:
            # Its verdicts would be ignored as stale; ending it saves the polling.
            self._watcher.cancel()
            self._watcher = None
        if event.kind is Outcome.WITHDRAWN and Effect.CLOSE_GATE in step.effects:
            self.close_gate()
        if (after.state, after.reason) != (before.state, before.reason):
            reason = after.reason.value if after.reason else "-"
            logger.info("lifecycle: %s (%s)", after.state.value, reason)
            self.publisher.publish(self.status())
        return step

    def status(self) -> Status:
        return Status(self.settings.worker_id, self.life.state, self.life.reason)

    # --- answers ----------------------------------------------------------------------------------

    def answer(self, status: int, error: str | None = None, result: Any = None) -> Answer:
        body: dict[str, Any] = msgspec.to_builtins(self.status())
        if error is not None:
            body["error"] = error
        return Answer(status, body, result)

    def superseded(self) -> Answer:
        """A later call or a signal replaced the intention while this one waited."""
        return self.answer(409, f"Superseded: the worker is {self.life.state.value} by now.")

    def discovery_failed(self, verb: str) -> Answer:
        cause = self.registration.last_error or "it has not answered yet"
        return self.answer(503, f"Discovery did not confirm that the worker was {verb}: {cause}.")

    # --- detached work ----------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run ``work`` whether or not anyone keeps waiting for it."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a lifecycle transition failed", exc_info=error)

    # --- discovery --------------------------------------------------------------------------------

    async def withdraw(self) -> Written:
        """Ask for withdrawal and wait at most ``discovery_timeout_s``; a confirmation that comes
        later still starts the grace, unless the intention has changed by then."""
        return await self.bounded(self.withdraw_soon())

    def withdraw_soon(self) -> asyncio.Task[Written]:
        return self.spawn(self._withdrawal(self.registration.wish_soon(False), self.life.epoch))

    async def _withdrawal(self, wish: asyncio.Future[Written], epoch: int) -> Written:
        written = await asyncio.shield(wish)
        if written is Written.CONFIRMED:
            self.report(Outcome.WITHDRAWN, epoch)
        return written

    async def register(self) -> Written:
        """Assert registration, unless the worker has left `serving` while the caller waited for
        something else: a late wish would supersede the withdrawal."""
        if not self.life.desired:
            return Written.SUPERSEDED
        return await self.bounded(self.registration.wish_soon(True))

    async def bounded(self, attempt: asyncio.Future[Written]) -> Written:
        done, _ = await asyncio.wait({attempt}, timeout=self.settings.discovery_timeout_s)
        # Before the caller's answer: what discovery confirmed is part of what people are shown.
        self.publisher.publish(self.status())
        return attempt.result() if done else Written.FAILED

    # --- the gate ---------------------------------------------------------------------------------

    async def open_gate(self, epoch: int, acknowledge: bool) -> bool:
        """Open admission, after the listener no longer says ``drained``. False: superseded.

        The lock keeps a second resume from registering before the first has opened the gate.
        """
        async with self._opening:
            if acknowledge:
                await self.publisher.publish_acknowledged(self.status())
            if self.life.epoch != epoch:
                return False
            if self.gate.closed or self.gate.closing:
                self.gate.open()
            return True

    def close_gate(self) -> None:
        """Set the deadline of the confirmed withdrawal and watch for completion after it."""
        if (closes_at_s := self.life.closes_at_s) is not None:
            self.gate.close_at(closes_at_s)
            self.watch_completion()

    def watch_completion(self) -> None:
        if self._watcher is None or self._watcher.done():
            self._watcher = self.spawn(self._watch(self.life.epoch))

    async def _watch(self, epoch: int) -> None:
        await self.until_closed()
        await self.completion.wait(lambda reason: self._report_waiting(epoch, reason))
        # No await since the last reading: the gate cannot have been opened in between.
        self.report(Outcome.COMPLETE, epoch)

    async def until_closed(self) -> None:
        """Return once admission is closed, by its deadline or by hand."""
        while True:
            if self.gate.closed:
                return
            await asyncio.sleep(min(max(self.gate.closes_in_s, 0.001), CLOSED_POLL_S))

    async def until_complete(self, timeout_s: float) -> bool:
        """While stopping: wait until nothing is left. False: not in time."""
        watcher = self._watcher
        if watcher is not None:
            await asyncio.wait({watcher}, timeout=timeout_s)
        return self.life.complete

    def _report_waiting(self, epoch: int, reason: Reason) -> None:
        self.report(Outcome.WAITING, epoch, reason=reason)
