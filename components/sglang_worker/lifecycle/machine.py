"""The drain state machine as a pure function: no clock, no asyncio, no HTTP.

`TRANSITIONS` has one rule per (event, state). A rule turns the present `Lifecycle` and an event
into the next `Lifecycle` and the effects that the controller must carry out, or into a refusal (a
sentence for the operator, HTTP 409). Outcomes that belong to a replaced intention change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from sglang_worker.lifecycle.states import Ask, Effect, Event, Outcome, PausedBy, Reason, State


class Lifecycle(msgspec.Struct, frozen=True):
    """All that the rules depend on. Times are seconds of one monotonic clock.

    ``epoch`` grows whenever the intention changes (drain, resume, pause, stop…).
    ``withdrawn_at_s`` is when discovery confirmed the present withdrawal, None while unconfirmed.
    ``released`` counts a tag from the moment its release is asked for, so that nothing can slip in
    between the check and the engine's work.
    """

    state: State = State.SERVING
    reason: Reason | None = None
    epoch: int = 0
    grace_s: float = 5.0
    can_drain: bool = True  # the response plane is TCP
    withdrawn_at_s: float | None = None
    paused_by: PausedBy = PausedBy.NOBODY
    released: frozenset[str] = frozenset()
    complete: bool = False  # in `stopping`: nothing is left to wait for

    @property
    def closes_at_s(self) -> float | None:
        """When admission closes: the grace counts from the confirmation and never moves."""
        if self.withdrawn_at_s is None:
            return None
        return self.withdrawn_at_s + self.grace_s

    @property
    def desired(self) -> bool:
        """Should the worker be registered? If and only if it serves."""
        return self.state is State.SERVING


class Step(msgspec.Struct, frozen=True):
    """``refusal`` None: accepted. ``next`` equals the old value for refusals and no-ops."""

    next: Lifecycle
    effects: tuple[Effect, ...] = ()
    refusal: str | None = None


Rule = Callable[[Lifecycle, Event], Step]
_replace = msgspec.structs.replace


def transition(present: Lifecycle, event: Event) -> Step:
    """Apply one event. Total: every event has a rule, or no meaning, in every state."""
    if event.epoch is not None and event.epoch != present.epoch:
        return Step(present)
    rule = TRANSITIONS.get((event.kind, present.state))
    return rule(present, event) if rule else Step(present)


def _enter(present: Lifecycle, state: State, reason: Reason | None = None) -> Lifecycle:
    return _replace(present, state=state, reason=reason, epoch=present.epoch + 1, complete=False)


def _refuse(sentence: str) -> Rule:
    def rule(present: Lifecycle, event: Event) -> Step:
        return Step(present, refusal=sentence)

    return rule


def _accept(present: Lifecycle, event: Event) -> Step:
    return Step(present)


def _accept_unless_released(present: Lifecycle, event: Event) -> Step:
    return Step(present, refusal=RELEASED if present.released else None)


def _withdraw_if_unconfirmed(present: Lifecycle) -> tuple[Effect, ...]:
    return (Effect.WITHDRAW,) if present.withdrawn_at_s is None else ()


# --- drain and resume -----------------------------------------------------------------------------

NOT_TCP = "Drain needs the TCP response plane; this worker uses another one."
PAUSED_DRAIN = (
    "Generation is paused or memory is released: resume the memory and continue generation first."
)
PAUSED_RESUME = "The worker is paused, not drained: resume the memory and continue generation."
RELEASED = "Memory is released: resume every released memory tag first."
STOPPING = "The worker is shutting down."


def _drain_serving(present: Lifecycle, event: Event) -> Step:
    if not present.can_drain:
        return Step(present, refusal=NOT_TCP)
    draining = _enter(present, State.DRAINING, Reason.UNREGISTER_PENDING)
    return Step(_replace(draining, withdrawn_at_s=None), (Effect.WITHDRAW,))


def _drain_again(present: Lifecycle, event: Event) -> Step:
    return Step(present, _withdraw_if_unconfirmed(present))


def _reassert(present: Lifecycle, event: Event) -> Step:
    return Step(present, (Effect.REGISTER,))


def _resume(present: Lifecycle, event: Event) -> Step:
    if present.released:
        return Step(present, refusal=RELEASED)
    serving = _replace(_enter(present, State.SERVING), withdrawn_at_s=None)
    return Step(serving, (Effect.OPEN_GATE, Effect.REGISTER))


# --- pause and continue ---------------------------------------------------------------------------

DRAIN_FIRST = "The worker is draining or drained: resume it before pausing generation."


def _pause_serving(present: Lifecycle, event: Event) -> Step:
    paused = _enter(present, State.PAUSED, Reason.UNREGISTER_PENDING)
    paused = _replace(paused, paused_by=PausedBy.OPERATOR, withdrawn_at_s=None)
    return Step(paused, (Effect.WITHDRAW, Effect.PAUSE_ENGINE))


def _pause_again(present: Lifecycle, event: Event) -> Step:
    """A second pause may carry another mode, so the engine hears of it; the operator now owns a
    pause that a memory release had made."""
    effects = (*_withdraw_if_unconfirmed(present), Effect.PAUSE_ENGINE)
    return Step(_replace(present, paused_by=PausedBy.OPERATOR), effects)


def _pause_failed(present: Lifecycle, event: Event) -> Step:
    """The engine may be half paused, so it is told to continue before the worker serves again."""
    serving = _replace(
        _enter(present, State.SERVING), paused_by=PausedBy.NOBODY, withdrawn_at_s=None
    )
    return Step(serving, (Effect.CONTINUE_ENGINE, Effect.REGISTER))


def _continue(present: Lifecycle, event: Event) -> Step:
    if present.released:
        return Step(present, refusal=RELEASED)
    return Step(present, (Effect.CONTINUE_ENGINE,))


def _continued(present: Lifecycle, event: Event) -> Step:
    serving = _replace(
        _enter(present, State.SERVING), paused_by=PausedBy.NOBODY, withdrawn_at_s=None
    )
    return Step(serving, (Effect.REGISTER,))


# --- memory ---------------------------------------------------------------------------------------

RELEASE_DRAINING = (
    "The worker is draining: wait for drained, or resume it, before releasing memory."
)


def _busy(event: Event) -> str:
    requests = "request is" if event.in_flight == 1 else "requests are"
    return f"{event.in_flight} {requests} in flight: memory can be released only when none is."


def _release_serving(present: Lifecycle, event: Event) -> Step:
    if event.in_flight:
        return Step(present, refusal=_busy(event))
    paused = _enter(present, State.PAUSED, Reason.UNREGISTER_PENDING)
    paused = _replace(paused, paused_by=PausedBy.RELEASE, withdrawn_at_s=None, released=event.tags)
    return Step(paused, (Effect.WITHDRAW, Effect.PAUSE_ENGINE, Effect.RELEASE_MEMORY))


def _release_idle(present: Lifecycle, event: Event) -> Step:
    if event.in_flight:
        return Step(present, refusal=_busy(event))
    fresh = event.tags - present.released
    if not fresh:
        return Step(present)
    return Step(_replace(present, released=present.released | fresh), (Effect.RELEASE_MEMORY,))


def _release_failed(present: Lifecycle, event: Event) -> Step:
    """Undo what the release itself did; ``event.tags`` are those that were not released."""
    return _tags_back(present, event)


def _resume_memory(present: Lifecycle, event: Event) -> Step:
    return Step(present, (Effect.RESUME_MEMORY,) if event.tags & present.released else ())


def _tags_back(present: Lifecycle, event: Event) -> Step:
    left = _replace(present, released=present.released - event.tags)
    undo = not left.released and left.paused_by is PausedBy.RELEASE and left.state is State.PAUSED
    return Step(left, (Effect.CONTINUE_ENGINE,) if undo else ())


# --- withdrawal, completion, stop -----------------------------------------------------------------


def _withdrawn_draining(present: Lifecycle, event: Event) -> Step:
    if present.withdrawn_at_s is not None:
        return Step(present)
    grace = _replace(present, withdrawn_at_s=event.now_s, reason=Reason.ROUTING_GRACE)
    return Step(grace, (Effect.CLOSE_GATE,))


def _withdrawn_paused(present: Lifecycle, event: Event) -> Step:
    at_s = event.now_s if present.withdrawn_at_s is None else present.withdrawn_at_s
    return Step(_replace(present, withdrawn_at_s=at_s, reason=None))


def _waiting(present: Lifecycle, event: Event) -> Step:
    return Step(_replace(present, reason=event.reason))


def _complete_draining(present: Lifecycle, event: Event) -> Step:
    return Step(_replace(present, state=State.DRAINED, reason=None))


def _complete_stopping(present: Lifecycle, event: Event) -> Step:
    return Step(_replace(present, reason=None, complete=True))


def _stop(present: Lifecycle, event: Event) -> Step:
    """Only the grace that is left is paid: a withdrawal confirmed earlier keeps its time. A drain
    that had confirmed keeps its deadline; from paused the engine continues, so that held requests
    can finish (not on released memory: those are failed by the shutdown sequence)."""
    confirmed = present.withdrawn_at_s is not None
    reason = Reason.ROUTING_GRACE if confirmed else Reason.UNREGISTER_PENDING
    held = present.state is State.PAUSED and not present.released
    first = (Effect.CONTINUE_ENGINE,) if held else ()
    then = Effect.CLOSE_GATE if confirmed else Effect.WITHDRAW
    return Step(_enter(present, State.STOPPING, reason), (*first, then))


SERVING, PAUSED, DRAINING, DRAINED = State.SERVING, State.PAUSED, State.DRAINING, State.DRAINED

TRANSITIONS: Mapping[tuple[Ask | Outcome, State], Rule] = {
    (Ask.DRAIN, SERVING): _drain_serving,
    (Ask.DRAIN, PAUSED): _refuse(PAUSED_DRAIN),
    (Ask.DRAIN, DRAINING): _drain_again,
    (Ask.DRAIN, DRAINED): _accept_unless_released,
    (Ask.DRAIN, State.STOPPING): _refuse(STOPPING),
    (Ask.RESUME, SERVING): _reassert,
    (Ask.RESUME, PAUSED): _refuse(PAUSED_RESUME),
    (Ask.RESUME, DRAINING): _resume,
    (Ask.RESUME, DRAINED): _resume,
    (Ask.RESUME, State.STOPPING): _refuse(STOPPING),
    (Ask.PAUSE, SERVING): _pause_serving,
    (Ask.PAUSE, PAUSED): _pause_again,
    (Ask.PAUSE, DRAINING): _refuse(DRAIN_FIRST),
    (Ask.PAUSE, DRAINED): _refuse(DRAIN_FIRST),
    (Ask.PAUSE, State.STOPPING): _refuse(STOPPING),
    (Ask.CONTINUE, SERVING): _continue,
    (Ask.CONTINUE, PAUSED): _continue,
    (Ask.CONTINUE, DRAINING): _continue,
    (Ask.CONTINUE, DRAINED): _continue,
    (Ask.CONTINUE, State.STOPPING): _refuse(STOPPING),
    (Ask.RELEASE, SERVING): _release_serving,
    (Ask.RELEASE, PAUSED): _release_idle,
    (Ask.RELEASE, DRAINING): _refuse(RELEASE_DRAINING),
    (Ask.RELEASE, DRAINED): _release_idle,
    (Ask.RELEASE, State.STOPPING): _refuse(STOPPING),
    (Ask.RESUME_MEMORY, SERVING): _accept,
    (Ask.RESUME_MEMORY, PAUSED): _resume_memory,
    (Ask.RESUME_MEMORY, DRAINING): _accept,
    (Ask.RESUME_MEMORY, DRAINED): _resume_memory,
    (Ask.RESUME_MEMORY, State.STOPPING): _refuse(STOPPING),
    (Ask.STOP, SERVING): _stop,
    (Ask.STOP, PAUSED): _stop,
    (Ask.STOP, DRAINING): _stop,
    (Ask.STOP, DRAINED): _stop,
    (Ask.STOP, State.STOPPING): _accept,
    (Outcome.WITHDRAWN, PAUSED): _withdrawn_paused,
    (Outcome.WITHDRAWN, DRAINING): _withdrawn_draining,
    (Outcome.WITHDRAWN, State.STOPPING): _withdrawn_draining,
    (Outcome.PAUSE_FAILED, PAUSED): _pause_failed,
    (Outcome.CONTINUED, PAUSED): _continued,
    (Outcome.RELEASE_FAILED, PAUSED): _release_failed,
    (Outcome.RELEASE_FAILED, DRAINED): _release_failed,
    (Outcome.MEMORY_RESUMED, PAUSED): _tags_back,
    (Outcome.MEMORY_RESUMED, DRAINED): _tags_back,
    (Outcome.WAITING, DRAINING): _waiting,
    (Outcome.WAITING, State.STOPPING): _waiting,
    (Outcome.COMPLETE, DRAINING): _complete_draining,
    (Outcome.COMPLETE, State.STOPPING): _complete_stopping,
}
