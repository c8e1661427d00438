"""Pause, continue, release and resume of memory: one at a time, and never against a drain.

The machine refuses or accepts at once; the lock only orders SGLang's own calls. Drain, resume and
the admission gate don't take it, so a slow engine never delays them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from sglang_worker.lifecycle.core import LifecycleCore
from sglang_worker.lifecycle.machine import Step
from sglang_worker.lifecycle.memory import in_order
from sglang_worker.lifecycle.ports import EngineControl
from sglang_worker.lifecycle.registration import Written
from sglang_worker.lifecycle.states import Answer, Ask, Effect, Outcome, PausedBy, State

logger = logging.getLogger(__name__)

PAUSE_MODES = ("abort", "retract", "in_place")
RELEASE_PAUSE_MODE = "in_place"  # nothing runs by then, so nothing has to be aborted or retracted


class InvalidPause(ValueError):
    """The body of a pause names no mode that SGLang knows."""


def requested_mode(body: Mapping[str, Any]) -> str:
    """SGLang's own default is abort; a body may carry ``mode`` and nothing else that matters."""
    mode = body.get("mode", "abort")
    if mode not in PAUSE_MODES:
        raise InvalidPause(f"mode must be one of {', '.join(PAUSE_MODES)}, not {mode!r}")
    return str(mode)


class EngineOperations:
    def __init__(self, core: LifecycleCore, engine: EngineControl) -> None:
        self._core = core
        self._engine = engine
        self._lock = asyncio.Lock()

    @property
    def probe_may_use_engine(self) -> bool:
        """False while a probe would be held by a pause or run on released memory."""
        life = self._core.life
        return life.paused_by is PausedBy.NOBODY and not life.released

    async def pause(self, mode: str) -> Answer:
        async with self._lock:
            before = self._core.life
            step = self._core.ask(Ask.PAUSE)
            if step.refusal:
                return self._core.answer(409, step.refusal)
            epoch = self._core.life.epoch
            withdrawal = self._core.withdraw_soon() if Effect.WITHDRAW in step.effects else None
            try:
                result = await self._engine.pause(mode)
            except Exception as error:
                if before.state is State.SERVING:
                    await self._undo(self._core.report(Outcome.PAUSE_FAILED, epoch))
                return self._failed("pause", error)
            if withdrawal is None:
                return self._core.answer(200, result=result)
            written = await self._core.bounded(withdrawal)
            if self._core.life.epoch != epoch:
                return self._core.superseded()
            if written is not Written.CONFIRMED:
                return self._core.discovery_failed("withdrawn")
            return self._core.answer(200, result=result)

    async def continue_(self, body: Mapping[str, Any]) -> Answer:
        async with self._lock:
            step = self._core.ask(Ask.CONTINUE)
            if step.refusal:
                return self._core.answer(409, step.refusal)
            epoch = self._core.life.epoch
            try:
                result = await self._engine.continue_(body)
            except Exception as error:
                return self._failed("continue", error)
            return await self._serve_again(self._core.report(Outcome.CONTINUED, epoch), result)

    async def release(self, tags: frozenset[str]) -> Answer:
        async with self._lock:
            before = self._core.life
            step = self._core.ask(Ask.RELEASE, tags=tags)
            if step.refusal:
                return self._core.answer(409, step.refusal)
            fresh = step.next.released - before.released
            if not fresh:
                return self._core.answer(200)
            if Effect.PAUSE_ENGINE in step.effects:
                refused = await self._prepare_release(fresh)
                if refused is not None:
                    return refused
            try:
                result = await self._engine.release_memory(in_order(fresh))
            except Exception as error:
                await self._undo(self._core.report(Outcome.RELEASE_FAILED, tags=fresh))
                return self._failed("release memory of", error)
            return self._core.answer(200, result=result)

    async def _prepare_release(self, fresh: frozenset[str]) -> Answer | None:
        """From serving: withdraw, pause, and make sure that nothing arrived meanwhile."""
        epoch = self._core.life.epoch
        written = await self._core.withdraw()
        if self._core.life.epoch != epoch:
            return self._core.superseded()
        if written is not Written.CONFIRMED:
            await self._undo(self._core.report(Outcome.RELEASE_FAILED, tags=fresh))
            return self._core.discovery_failed("withdrawn")
        try:
            await self._engine.pause(RELEASE_PAUSE_MODE)
        except Exception as error:
            await self._undo(self._core.report(Outcome.RELEASE_FAILED, tags=fresh))
            return self._failed("pause", error)
        if self._core.life.epoch != epoch:
            return self._core.superseded()
        if arrived := self._core.gate.in_flight:
            await self._undo(self._core.report(Outcome.RELEASE_FAILED, tags=fresh))
            return self._core.answer(409, f"{arrived} requests arrived during the withdrawal.")
        return None

    async def resume_memory(self, tags: frozenset[str]) -> Answer:
        async with self._lock:
            step = self._core.ask(Ask.RESUME_MEMORY, tags=tags)
            if step.refusal:
                return self._core.answer(409, step.refusal)
            if not step.effects:
                return self._core.answer(200)
            back = tags & self._core.life.released
            try:
                result = await self._engine.resume_memory(in_order(back))
            except Exception as error:
                return self._failed("resume memory of", error)
            step = self._core.report(Outcome.MEMORY_RESUMED, tags=back)
            if Effect.CONTINUE_ENGINE not in step.effects:
                return self._core.answer(200, result=result)
            epoch = self._core.life.epoch
            try:
                await self._engine.continue_({})
            except Exception as error:
                return self._failed("continue", error)
            return await self._serve_again(self._core.report(Outcome.CONTINUED, epoch), result)

    async def continue_for_stop(self) -> None:
        """Shutdown from paused: let held requests go. Waits for an operation under way."""
        async with self._lock:
            await self._engine.continue_({})

    async def _serve_again(self, step: Step, result: Any) -> Answer:
        if Effect.REGISTER not in step.effects:
            stopping = self._core.life.state is State.STOPPING
            return self._core.superseded() if stopping else self._core.answer(200, result=result)
        epoch = self._core.life.epoch
        written = await self._core.register()
        if self._core.life.epoch != epoch:
            return self._core.superseded()
        if written is not Written.CONFIRMED:
            return self._core.discovery_failed("registered")
        return self._core.answer(200, result=result)

    async def _undo(self, step: Step) -> None:
        """Carry out what a failed operation has to take back; its own failures are logged."""
        if Effect.CONTINUE_ENGINE in step.effects:
            epoch = self._core.life.epoch
            try:
                await self._engine.continue_({})
            except Exception:
                logger.exception("the engine could not continue after a failed operation")
            if Effect.REGISTER not in step.effects:
                step = self._core.report(Outcome.CONTINUED, epoch)
        if Effect.REGISTER in step.effects:
            await self._core.register()

    def _failed(self, verb: str, error: Exception) -> Answer:
        logger.warning("could not %s the engine", verb, exc_info=error)
        return self._core.answer(500, f"Could not {verb} the engine: {error}")
