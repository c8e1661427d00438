"""What the routes, the main program and the signal handlers call.

Every operation runs detached: the HTTP caller that hangs up neither stops it nor loses its effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any

from sglang_worker.lifecycle.core import LifecycleCore
from sglang_worker.lifecycle.engine_operations import (
    EngineOperations,
    InvalidPause,
    requested_mode,
)
from sglang_worker.lifecycle.machine import RELEASED, STOPPING
from sglang_worker.lifecycle.memory import InvalidTags, in_order, requested_tags
from sglang_worker.lifecycle.ports import EngineControl
from sglang_worker.lifecycle.registration import Written
from sglang_worker.lifecycle.states import Answer, Ask, Effect, State, Status

logger = logging.getLogger(__name__)

# SGLang would write into memory that it has given back.
WEIGHT_WRITES = frozenset(
    f"update_weights_from_{source}" for source in ("disk", "tensor", "distributed", "ipc")
)
MODEL_RUNS = frozenset(("generate", "async_generate", "encode", "async_encode"))
WITHDRAW_RETRY_S = 0.5
CONTINUE_PATIENCE_S = 3.0


class LifecycleController:
    def __init__(self, core: LifecycleCore, engine: EngineControl) -> None:
        self.core = core
        self._operations = EngineOperations(core, engine)

    # --- reading ----------------------------------------------------------------------------------

    def status(self) -> Status:
        return self.core.status()

    def status_answer(self) -> Answer:
        return self.core.answer(200)

    @property
    def state(self) -> State:
        return self.core.life.state

    @property
    def probe_may_use_engine(self) -> bool:
        return self._operations.probe_may_use_engine

    def details(self) -> dict[str, Any]:
        """For people: counts, seconds left, and what discovery last said."""
        core = self.core
        details: dict[str, Any] = {
            "in_flight": core.gate.in_flight,
            "registered": core.registration.confirmed.value,
        }
        if core.gate.closing:
            details["admission_closes_in_s"] = round(max(0.0, core.gate.closes_in_s), 1)
        if core.life.released:
            details["released_memory"] = in_order(core.life.released)
        if core.registration.last_error:
            details["discovery_error"] = core.registration.last_error
        return details

    def guard(self, operation: str) -> str | None:
        """Why another engine call (weights, cache, profile) is not allowed now, in one sentence;
        None when it is. Its type is `system.lifecycle_port.Guard`."""
        life = self.core.life
        if life.state is State.STOPPING:
            return STOPPING
        if operation in WEIGHT_WRITES and "weights" in life.released:
            return "The weights are released: resume their memory before updating them."
        if operation in MODEL_RUNS and life.released:
            return RELEASED
        return None

    # --- drain and resume -------------------------------------------------------------------------

    async def drain(self) -> Answer:
        return await self._detached(self._drain())

    async def resume(self) -> Answer:
        return await self._detached(self._resume())

    async def _drain(self) -> Answer:
        core = self.core
        step = core.ask(Ask.DRAIN)
        if step.refusal:
            return core.answer(409, step.refusal)
        if Effect.WITHDRAW in step.effects:
            epoch = core.life.epoch
            written = await core.withdraw()
            if core.life.epoch != epoch:
                return core.superseded()
            if written is not Written.CONFIRMED:
                return core.discovery_failed("withdrawn")
        return core.answer(200 if core.life.state is State.DRAINED else 202)

    async def _resume(self) -> Answer:
        core = self.core
        was_drained = core.life.state is State.DRAINED
        step = core.ask(Ask.RESUME)
        if step.refusal:
            return core.answer(409, step.refusal)
        epoch = core.life.epoch
        if not await core.open_gate(epoch, acknowledge=was_drained):
            return core.superseded()
        written = await core.register()
        if core.life.epoch != epoch:
            return core.superseded()
        if written is not Written.CONFIRMED:
            return core.discovery_failed("registered")
        return core.answer(200)

    # --- engine operations ------------------------------------------------------------------------

    async def pause(self, body: Mapping[str, Any]) -> Answer:
        try:
            mode = requested_mode(body)
        except InvalidPause as error:
            return self.core.answer(400, str(error))
        return await self._detached(self._operations.pause(mode))

    async def continue_(self, body: Mapping[str, Any]) -> Answer:
        return await self._detached(self._operations.continue_(body))

    async def release(self, body: Mapping[str, Any]) -> Answer:
        try:
            tags = requested_tags(body)
        except InvalidTags as error:
            return self.core.answer(400, str(error))
        return await self._detached(self._operations.release(tags))

    async def resume_memory(self, body: Mapping[str, Any]) -> Answer:
        try:
            tags = requested_tags(body)
        except InvalidTags as error:
            return self.core.answer(400, str(error))
        return await self._detached(self._operations.resume_memory(tags))

    # --- start and stop ---------------------------------------------------------------------------

    async def start(self) -> Written:
        """The first registration, unless a signal came first."""
        written = await self.core.register()
        self.core.publisher.publish(self.core.status())
        return written

    def stop_soon(self, *, engine_alive: bool = True) -> asyncio.Task[None]:
        """Enter ``stopping`` now; the task ends when discovery has confirmed the withdrawal and
        the deadline of the grace that is left is set."""
        step = self.core.ask(Ask.STOP)
        effects = frozenset(step.effects)
        if not engine_alive:
            effects -= {Effect.CONTINUE_ENGINE}
        return self.core.spawn(self._stop(effects))

    async def _stop(self, effects: frozenset[Effect]) -> None:
        """Show ``stopping`` before the gate may close, continue a paused engine, and withdraw,
        again and again while discovery fails."""
        await self.core.publisher.publish_acknowledged(self.core.status())
        if Effect.CONTINUE_ENGINE in effects:
            continued = self.core.spawn(self._operations.continue_for_stop())
            # A pause that hangs holds the engine's lock; the shutdown must not hang with it.
            await asyncio.wait({continued}, timeout=CONTINUE_PATIENCE_S)
        if Effect.CLOSE_GATE in effects:
            self.core.close_gate()
        if Effect.WITHDRAW in effects:
            await self._withdraw_until_confirmed()

    async def _withdraw_until_confirmed(self) -> None:
        # The death of the engine has asked for it already: a second write would only fail.
        while self.core.life.withdrawn_at_s is None:
            if await self.core.withdraw() is not Written.CONFIRMED:
                await asyncio.sleep(WITHDRAW_RETRY_S)

    async def _detached(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return await asyncio.shield(self.core.spawn(work))
