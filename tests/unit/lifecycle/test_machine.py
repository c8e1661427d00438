from __future__ import annotations

import msgspec
import pytest
from sglang_worker.lifecycle import machine
from sglang_worker.lifecycle.machine import TRANSITIONS, Lifecycle, Step, transition
from sglang_worker.lifecycle.states import Ask, Effect, Event, Outcome, PausedBy, Reason, State

GRACE_S = 5.0
TAGS = frozenset({"kv_cache", "weights"})


def start(**fields: object) -> Lifecycle:
    return msgspec.structs.replace(Lifecycle(grace_s=GRACE_S), **fields)


def step(life: Lifecycle, kind: Ask | Outcome, now_s: float = 0.0, **fields: object) -> Step:
    return transition(life, Event(kind, now_s, **fields))  # type: ignore[arg-type]


def draining(now_s: float = 10.0) -> Lifecycle:
    asked = step(start(), Ask.DRAIN).next
    return step(asked, Outcome.WITHDRAWN, now_s, epoch=asked.epoch).next


def drained() -> Lifecycle:
    life = draining()
    return step(life, Outcome.COMPLETE, 16.0, epoch=life.epoch).next


def paused(now_s: float = 10.0) -> Lifecycle:
    asked = step(start(), Ask.PAUSE).next
    return step(asked, Outcome.WITHDRAWN, now_s, epoch=asked.epoch).next


def stopping() -> Lifecycle:
    return step(start(), Ask.STOP).next


STATES = {
    State.SERVING: start,
    State.PAUSED: paused,
    State.DRAINING: draining,
    State.DRAINED: drained,
    State.STOPPING: stopping,
}


def test_every_ask_has_a_rule_in_every_state() -> None:
    assert {(ask, state) for ask in Ask for state in State} <= set(TRANSITIONS)


@pytest.mark.parametrize("state", State)
def test_the_fixtures_are_in_the_states_they_claim(state: State) -> None:
    assert STATES[state]().state is state


# --- drain ----------------------------------------------------------------------------------------


def test_drain_from_serving_withdraws_and_waits_for_the_confirmation() -> None:
    result = step(start(), Ask.DRAIN)
    assert result.next.state is State.DRAINING
    assert result.next.reason is Reason.UNREGISTER_PENDING
    assert result.effects == (Effect.WITHDRAW,)
    assert result.next.closes_at_s is None


def test_the_grace_counts_from_the_confirmation() -> None:
    life = draining(now_s=10.0)
    assert life.reason is Reason.ROUTING_GRACE
    assert life.closes_at_s == 10.0 + GRACE_S


def test_a_second_drain_retries_only_what_is_unconfirmed_and_never_moves_the_deadline() -> None:
    asked = step(start(), Ask.DRAIN).next
    assert step(asked, Ask.DRAIN).effects == (Effect.WITHDRAW,)
    confirmed = draining(now_s=10.0)
    again = step(confirmed, Ask.DRAIN, now_s=12.0)
    assert again.effects == () and again.next == confirmed
    late = step(confirmed, Outcome.WITHDRAWN, 14.0, epoch=confirmed.epoch)
    assert late.next.closes_at_s == 15.0


def test_drain_of_a_drained_worker_changes_nothing() -> None:
    assert step(drained(), Ask.DRAIN) == Step(drained())


@pytest.mark.parametrize("state", [State.PAUSED, State.STOPPING])
def test_drain_conflicts_with_pause_and_shutdown(state: State) -> None:
    life = STATES[state]()
    result = step(life, Ask.DRAIN)
    assert result.refusal and result.next == life and not result.effects


def test_drain_needs_the_tcp_response_plane() -> None:
    result = step(start(can_drain=False), Ask.DRAIN)
    assert result.refusal == machine.NOT_TCP


# --- completion -----------------------------------------------------------------------------------


def test_draining_names_what_it_waits_for() -> None:
    life = draining()
    result = step(life, Outcome.WAITING, 20.0, epoch=life.epoch, reason=Reason.SGLANG_INFLIGHT)
    assert result.next.reason is Reason.SGLANG_INFLIGHT


def test_completion_makes_draining_drained() -> None:
    assert drained().state is State.DRAINED
    assert drained().reason is None


def test_a_stale_monitor_can_not_make_a_resumed_worker_drained() -> None:
    before = draining()
    resumed = step(before, Ask.RESUME).next
    verdict = step(resumed, Outcome.COMPLETE, 20.0, epoch=before.epoch)
    assert verdict == Step(resumed)
    drained_again = step(resumed, Ask.DRAIN).next
    assert step(drained_again, Outcome.COMPLETE, 20.0, epoch=before.epoch).next == drained_again


def test_a_stale_confirmation_can_not_start_the_grace_of_a_later_drain() -> None:
    first = step(start(), Ask.DRAIN).next
    second = step(step(first, Ask.RESUME).next, Ask.DRAIN).next
    assert step(second, Outcome.WITHDRAWN, 3.0, epoch=first.epoch).next == second


# --- resume ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.DRAINING, State.DRAINED])
def test_resume_opens_the_gate_before_it_registers(state: State) -> None:
    result = step(STATES[state](), Ask.RESUME)
    assert result.next.state is State.SERVING and result.next.reason is None
    assert result.next.withdrawn_at_s is None
    assert result.effects == (Effect.OPEN_GATE, Effect.REGISTER)


def test_resume_while_serving_reasserts_the_registration() -> None:
    assert step(start(), Ask.RESUME) == Step(start(), (Effect.REGISTER,))


def test_resume_while_the_withdrawal_is_pending_replaces_the_intention() -> None:
    asked = step(start(), Ask.DRAIN).next
    resumed = step(asked, Ask.RESUME).next
    assert resumed.state is State.SERVING
    assert step(resumed, Outcome.WITHDRAWN, 2.0, epoch=asked.epoch).next == resumed


@pytest.mark.parametrize("state", [State.PAUSED, State.STOPPING])
def test_resume_conflicts_with_pause_and_shutdown(state: State) -> None:
    assert step(STATES[state](), Ask.RESUME).refusal


# --- pause and continue ---------------------------------------------------------------------------


def test_pause_withdraws_and_keeps_the_confirmation() -> None:
    result = step(start(), Ask.PAUSE)
    assert result.next.state is State.PAUSED
    assert set(result.effects) == {Effect.PAUSE_ENGINE, Effect.WITHDRAW}
    assert paused().reason is None and paused().withdrawn_at_s == 10.0


def test_a_second_pause_retries_an_unconfirmed_withdrawal() -> None:
    asked = step(start(), Ask.PAUSE).next
    assert Effect.WITHDRAW in step(asked, Ask.PAUSE).effects
    assert step(paused(), Ask.PAUSE).effects == (Effect.PAUSE_ENGINE,)


@pytest.mark.parametrize("state", [State.DRAINING, State.DRAINED, State.STOPPING])
def test_pause_conflicts_with_drain_and_shutdown(state: State) -> None:
    assert step(STATES[state](), Ask.PAUSE).refusal


def test_a_pause_that_the_engine_refused_serves_again() -> None:
    asked = step(start(), Ask.PAUSE).next
    result = step(asked, Outcome.PAUSE_FAILED, epoch=asked.epoch)
    assert result.next.state is State.SERVING
    assert result.next.paused_by is PausedBy.NOBODY
    assert result.effects == (Effect.CONTINUE_ENGINE, Effect.REGISTER)


def test_continue_from_paused_continues_and_then_registers() -> None:
    asked = step(paused(), Ask.CONTINUE)
    assert asked.effects == (Effect.CONTINUE_ENGINE,) and asked.next.state is State.PAUSED
    done = step(asked.next, Outcome.CONTINUED, epoch=asked.next.epoch)
    assert done.next.state is State.SERVING and done.effects == (Effect.REGISTER,)


@pytest.mark.parametrize("state", [State.SERVING, State.DRAINING, State.DRAINED])
def test_continue_elsewhere_has_no_effect_on_registration(state: State) -> None:
    life = STATES[state]()
    assert step(life, Ask.CONTINUE) == Step(life, (Effect.CONTINUE_ENGINE,))
    assert step(life, Outcome.CONTINUED, epoch=life.epoch) == Step(life)


def test_continue_conflicts_with_shutdown() -> None:
    assert step(stopping(), Ask.CONTINUE).refusal


# --- memory ---------------------------------------------------------------------------------------


def test_release_from_serving_withdraws_and_pauses_by_itself_first() -> None:
    result = step(start(), Ask.RELEASE, tags=TAGS)
    assert result.effects == (Effect.WITHDRAW, Effect.PAUSE_ENGINE, Effect.RELEASE_MEMORY)
    assert result.next.state is State.PAUSED
    assert result.next.paused_by is PausedBy.RELEASE and result.next.released == TAGS


@pytest.mark.parametrize("state", [State.PAUSED, State.DRAINED])
def test_release_of_an_idle_worker_changes_only_what_is_released(state: State) -> None:
    life = STATES[state]()
    result = step(life, Ask.RELEASE, tags=TAGS)
    assert result.effects == (Effect.RELEASE_MEMORY,)
    assert result.next == msgspec.structs.replace(life, released=TAGS)
    assert step(result.next, Ask.RELEASE, tags=TAGS) == Step(result.next)


@pytest.mark.parametrize("state", [State.SERVING, State.PAUSED, State.DRAINED])
def test_release_is_refused_with_the_count_while_requests_are_in_flight(state: State) -> None:
    life = STATES[state]()
    result = step(life, Ask.RELEASE, tags=TAGS, in_flight=3)
    assert result.next == life and result.refusal and result.refusal.startswith("3 requests")


@pytest.mark.parametrize("state", [State.DRAINING, State.STOPPING])
def test_release_conflicts_with_a_drain_under_way_and_with_shutdown(state: State) -> None:
    assert step(STATES[state](), Ask.RELEASE, tags=TAGS).refusal


@pytest.mark.parametrize("state", [State.PAUSED, State.DRAINED])
@pytest.mark.parametrize("ask", [Ask.CONTINUE, Ask.DRAIN, Ask.RESUME])
def test_released_memory_blocks_continue_drain_and_resume(state: State, ask: Ask) -> None:
    released = step(STATES[state](), Ask.RELEASE, tags=TAGS).next
    assert step(released, ask).refusal
    one_left = step(released, Outcome.MEMORY_RESUMED, tags=frozenset({"weights"})).next
    assert step(one_left, ask).refusal


def test_resuming_the_last_tag_undoes_the_pause_that_release_made() -> None:
    life = step(start(), Ask.RELEASE, tags=TAGS).next
    one = step(life, Outcome.MEMORY_RESUMED, tags=frozenset({"weights"}))
    assert one.effects == () and one.next.state is State.PAUSED
    last = step(one.next, Outcome.MEMORY_RESUMED, tags=frozenset({"kv_cache"}))
    assert last.effects == (Effect.CONTINUE_ENGINE,)
    served = step(last.next, Outcome.CONTINUED, epoch=last.next.epoch)
    assert served.next.state is State.SERVING and served.effects == (Effect.REGISTER,)


def test_resuming_the_last_tag_never_undoes_the_operators_own_pause() -> None:
    life = step(paused(), Ask.RELEASE, tags=TAGS).next
    assert step(life, Outcome.MEMORY_RESUMED, tags=TAGS) == Step(paused())
    adopted = step(step(start(), Ask.RELEASE, tags=TAGS).next, Ask.PAUSE).next
    assert step(adopted, Outcome.MEMORY_RESUMED, tags=TAGS).effects == ()


def test_resuming_the_last_tag_changes_nothing_else_in_drained() -> None:
    life = step(drained(), Ask.RELEASE, tags=TAGS).next
    assert step(life, Outcome.MEMORY_RESUMED, tags=TAGS) == Step(drained())


def test_resuming_memory_that_was_never_released_is_accepted_without_effect() -> None:
    for state in (State.SERVING, State.DRAINING, State.PAUSED, State.DRAINED):
        life = STATES[state]()
        assert step(life, Ask.RESUME_MEMORY, tags=TAGS) == Step(life)


def test_a_release_that_failed_is_undone() -> None:
    life = step(start(), Ask.RELEASE, tags=TAGS).next
    failed = step(life, Outcome.RELEASE_FAILED, tags=TAGS)
    assert failed.next.released == frozenset() and failed.effects == (Effect.CONTINUE_ENGINE,)


# --- stop -----------------------------------------------------------------------------------------


def test_stop_from_serving_withdraws_and_pays_the_whole_grace() -> None:
    result = step(start(), Ask.STOP)
    assert result.effects == (Effect.WITHDRAW,)
    confirmed = step(result.next, Outcome.WITHDRAWN, 100.0, epoch=result.next.epoch)
    assert confirmed.next.closes_at_s == 105.0 and confirmed.effects == (Effect.CLOSE_GATE,)


@pytest.mark.parametrize("state", [State.DRAINING, State.DRAINED, State.PAUSED])
def test_stop_pays_only_the_grace_that_is_left(state: State) -> None:
    result = step(STATES[state](), Ask.STOP, now_s=13.0)
    assert result.next.state is State.STOPPING
    assert result.next.closes_at_s == 15.0
    assert Effect.WITHDRAW not in result.effects and Effect.CLOSE_GATE in result.effects


def test_stop_while_the_withdrawal_is_unconfirmed_keeps_withdrawing() -> None:
    for ask in (Ask.DRAIN, Ask.PAUSE):
        asked = step(start(), ask).next
        assert Effect.WITHDRAW in step(asked, Ask.STOP).effects


def test_stop_from_paused_continues_first_unless_memory_is_released() -> None:
    assert step(paused(), Ask.STOP).effects[0] is Effect.CONTINUE_ENGINE
    released = step(paused(), Ask.RELEASE, tags=TAGS).next
    assert Effect.CONTINUE_ENGINE not in step(released, Ask.STOP).effects


def test_stop_twice_is_one_stop() -> None:
    assert step(stopping(), Ask.STOP) == Step(stopping())


def test_completion_while_stopping_is_not_called_drained() -> None:
    life = stopping()
    done = step(life, Outcome.COMPLETE, epoch=life.epoch).next
    assert done.state is State.STOPPING and done.complete


def test_nothing_leaves_stopping() -> None:
    for kind in (*Ask, *Outcome):
        assert step(stopping(), kind, tags=TAGS).next.state is State.STOPPING
