"""What a lost gateway, a signal and the engine's death come to, without processes."""

from __future__ import annotations

import msgspec
import pytest
from sglang_worker.errors import ExitCode
from sglang_worker.gateway.supervision import Do, Fleet, FleetTimes, Order
from sglang_worker.system.state import WorkerState

TIMES = FleetTimes(stop_s=30.0, handover_s=2.0, death_s=6.0, silent_s=10.0)
GOOD = WorkerState(started=True, healthy=True)


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fleet(clock: Clock) -> Fleet:
    """Two gateways that serve."""
    made = Fleet(2, TIMES, clock)
    for index in (0, 1):
        made.heard(index, GOOD, held=index)
    return made


def both(do: Do) -> list[Order]:
    return [Order(do, 0), Order(do, 1)]


def test_it_has_started_once_every_gateway_has(clock: Clock) -> None:
    fleet = Fleet(2, TIMES, clock)
    fleet.heard(0, GOOD, held=0)
    assert not fleet.started
    assert fleet.fault == "gateway 1: starting"
    fleet.heard(1, GOOD, held=0)
    assert fleet.started
    assert fleet.fault is None


def test_a_signal_stops_every_gateway_and_ends_with_0(fleet: Fleet) -> None:
    assert list(fleet.stop()) == both(Do.STOP)
    assert list(fleet.ended(0, 0)) == []
    assert not fleet.done
    assert list(fleet.ended(1, 0)) == []
    assert fleet.done
    assert fleet.outcome[0] is ExitCode.STOPPED


def test_a_lost_gateway_ends_the_worker_after_the_others_took_its_requests(
    fleet: Fleet, clock: Clock
) -> None:
    assert list(fleet.ended(1, -9)) == [Order(Do.ABORT, 1)]
    assert fleet.fault == "gateway 1 was ended by signal 9 while serving"
    assert list(fleet.tick()) == []
    clock.now_s += TIMES.handover_s
    assert list(fleet.tick()) == [Order(Do.STOP, 0)]
    assert list(fleet.tick()) == [], "told once"
    fleet.ended(0, 0)
    assert fleet.outcome == (
        ExitCode.RUNTIME_FAILURE,
        "gateway 1 was ended by signal 9 while serving",
    )


def test_a_signal_ends_the_handover_and_the_fault_keeps_its_code(fleet: Fleet) -> None:
    fleet.ended(1, 1)
    assert list(fleet.stop()) == [Order(Do.STOP, 0)]
    fleet.ended(0, 0)
    assert fleet.outcome[0] is ExitCode.RUNTIME_FAILURE


def test_a_gateway_that_ends_before_it_serves_stops_the_others_at_once(clock: Clock) -> None:
    fleet = Fleet(2, TIMES, clock)
    assert list(fleet.ended(0, 2)) == [Order(Do.ABORT, 0), Order(Do.STOP, 1)]
    fleet.ended(1, 0)
    assert fleet.outcome == (
        ExitCode.RUNTIME_FAILURE,
        "gateway 0 ended with exit code 2 before it served",
    )


def test_the_engine_s_death_is_told_to_all_and_ends_with_71(fleet: Fleet, clock: Clock) -> None:
    assert list(fleet.engine_died("scheduler 0 (pid 7) died")) == both(Do.TELL_DEATH)
    assert list(fleet.ended(0, 71)) == [Order(Do.ABORT, 0)]
    clock.now_s += TIMES.death_s
    assert list(fleet.tick()) == [Order(Do.KILL, 1)]
    fleet.ended(1, -9)
    assert fleet.outcome == (ExitCode.ENGINE_DIED, "the engine died: scheduler 0 (pid 7) died")


def test_the_engine_s_death_during_a_stop_shortens_it(fleet: Fleet, clock: Clock) -> None:
    fleet.stop()
    assert list(fleet.engine_died("x")) == both(Do.TELL_DEATH)
    clock.now_s += TIMES.death_s
    assert list(fleet.tick()) == both(Do.KILL)


def test_a_gateway_that_does_not_stop_is_killed_and_ends_with_70(
    fleet: Fleet, clock: Clock
) -> None:
    fleet.stop()
    fleet.ended(0, 0)
    clock.now_s += TIMES.stop_s - 0.1
    assert list(fleet.tick()) == []
    clock.now_s += 0.1
    assert list(fleet.tick()) == [Order(Do.KILL, 1)]
    fleet.ended(1, -9)
    assert fleet.outcome[0] is ExitCode.SHUTDOWN_WATCHDOG


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(70, ExitCode.SHUTDOWN_WATCHDOG), (1, ExitCode.RUNTIME_FAILURE), (-11, 1)],
)
def test_a_gateway_that_fails_while_stopping_is_not_hidden(
    fleet: Fleet, code: int, outcome: ExitCode
) -> None:
    fleet.stop()
    fleet.ended(0, code)
    fleet.ended(1, 0)
    assert fleet.outcome[0] == outcome


def test_an_unhealthy_or_silent_gateway_makes_the_worker_unhealthy(
    fleet: Fleet, clock: Clock
) -> None:
    bad = msgspec.structs.replace(GOOD, healthy=False, unhealthy_reason="no answer for 10 s")
    fleet.heard(1, bad, held=0)
    assert fleet.fault == "gateway 1: no answer for 10 s"
    fleet.heard(1, GOOD, held=0)
    assert fleet.fault is None
    clock.now_s += TIMES.silent_s + 1
    fleet.heard(1, GOOD, held=0)
    assert fleet.fault == "gateway 0 has not reported for 11 s"
