from __future__ import annotations

from sglang_worker.lifecycle.history import History
from sglang_worker.lifecycle.states import Reason, State


def test_time_is_kept_for_every_state_and_reason_up_to_now() -> None:
    history = History(10.0)
    history.note(State.DRAINING, Reason.UNREGISTER_PENDING, 20.0)
    history.note(State.DRAINING, Reason.ROUTING_GRACE, 21.0)
    history.note(State.DRAINING, Reason.ROUTING_GRACE, 25.0)
    assert history.seconds(26.0) == {
        (State.SERVING, None): 10.0,
        (State.DRAINING, Reason.UNREGISTER_PENDING): 1.0,
        (State.DRAINING, Reason.ROUTING_GRACE): 5.0,
    }


def test_a_drain_lasts_until_drained_whatever_it_waited_for() -> None:
    history = History(0.0)
    history.note(State.DRAINING, Reason.UNREGISTER_PENDING, 1.0)
    assert history.draining_since_s == 1.0
    history.note(State.DRAINING, Reason.SGLANG_INFLIGHT, 3.0)
    history.note(State.DRAINED, None, 6.0)
    assert (history.drains, history.drains_took_s) == (1, 5.0)
    assert history.draining_since_s is None
    assert history.entered[State.DRAINING] == history.entered[State.DRAINED] == 1


def test_a_drain_that_is_resumed_or_overtaken_by_a_stop_has_no_duration() -> None:
    history = History(0.0)
    for end in (State.SERVING, State.STOPPING):
        history.note(State.DRAINING, None, 1.0)
        history.note(end, None, 2.0)
    assert (history.drains, history.drains_abandoned) == (0, 2)
    assert history.draining_since_s is None
