from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from sglang_worker.lifecycle.gate import AdmissionGate, LateRequest, Ticket


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_request_is_counted_until_its_ticket_is_released() -> None:
    gate = AdmissionGate()
    ticket = gate.admit()
    assert gate.in_flight == 1
    ticket.release()
    ticket.release()
    assert gate.in_flight == 0


def test_a_ticket_is_released_when_the_handler_raises() -> None:
    gate = AdmissionGate()
    with pytest.raises(RuntimeError), gate.admit():
        raise RuntimeError
    assert gate.in_flight == 0


def test_a_closed_gate_refuses_requests_and_lets_probes_pass_uncounted() -> None:
    gate = AdmissionGate()
    gate.close()
    with pytest.raises(LateRequest):
        gate.admit()
    with gate.admit(probe=True):
        assert gate.in_flight == 0
    assert gate.in_flight == 0


def test_the_deadline_is_checked_at_ingress_without_any_timer() -> None:
    clock = Clock()
    gate = AdmissionGate(clock)
    gate.close_at(105.0)
    gate.admit()
    clock.now = 104.999
    gate.admit()
    clock.now = 105.0
    with pytest.raises(LateRequest):
        gate.admit()
    assert gate.view().closed and gate.in_flight == 2


def test_a_deadline_never_moves_later() -> None:
    clock = Clock()
    gate = AdmissionGate(clock)
    gate.close_at(105.0)
    gate.close_at(120.0)
    clock.now = 106.0
    assert gate.closed


def test_opening_forgets_the_deadline_and_starts_a_new_epoch() -> None:
    clock = Clock()
    gate = AdmissionGate(clock)
    gate.close_at(101.0)
    clock.now = 102.0
    before = gate.view()
    gate.open()
    after = gate.view()
    assert before.closed and not after.closed
    assert after.epoch > before.epoch


ROUNDS = 1500
THREADS = 16


def preempting_clock() -> float:
    """Give the processor away between the gate's check and its count, where a race would live."""
    time.sleep(0)
    return -1.0


@pytest.fixture
def eager_thread_switches() -> Iterator[None]:
    """Let threads switch every 0.1 ms instead of 5 ms, so that races have a chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(before)


class Crowd:
    """16 threads that each ask for admission three times per round and keep their tickets."""

    def __init__(self, gate: AdmissionGate, rounds: int) -> None:
        self._gate = gate
        self._rounds = rounds
        self._edge = threading.Barrier(THREADS + 1)
        self.tickets: list[Ticket] = []  # list.append is atomic
        self._threads = [threading.Thread(target=self._run) for _ in range(THREADS)]

    def _run(self) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._play()

    def _play(self) -> None:
        for _ in range(self._rounds):
            self._edge.wait()
            for _ in range(3):
                try:
                    self.tickets.append(self._gate.admit())
                except LateRequest:
                    break
            self._edge.wait()

    def start_round(self) -> None:
        self._edge.wait()

    def end_round(self) -> list[Ticket]:
        self._edge.wait()
        tickets, self.tickets = self.tickets, []
        return tickets

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, failed: object, *_: object) -> None:
        if failed:
            self._edge.abort()
        for thread in self._threads:
            thread.join()


def race(gate: AdmissionGate, close: Callable[[int], None]) -> list[int]:
    """Rounds of requests against ``close``; returns how many were admitted in each.

    Whoever is admitted keeps the ticket, so the count right after the closing must be the count at
    the end of the round: more is a late admission, fewer a lost one.
    """
    admitted = []
    with Crowd(gate, ROUNDS) as crowd:
        for number in range(ROUNDS):
            gate.open()
            gate.close_at(number + 0.5)  # so that every admission reads the clock
            crowd.start_round()
            for _ in range(number % 20):
                time.sleep(0)
            close(number)
            at_close = gate.in_flight
            tickets = crowd.end_round()
            assert at_close == gate.in_flight == len(tickets), f"round {number}"
            admitted.append(len(tickets))
            for ticket in tickets:
                ticket.release()
            assert gate.in_flight == 0
    return admitted


@pytest.mark.usefixtures("eager_thread_switches")
def test_nobody_of_sixteen_threads_enters_after_close_and_no_count_is_lost() -> None:
    gate = AdmissionGate(preempting_clock)
    admitted = race(gate, lambda number: gate.close())
    assert sum(admitted) > 0 and min(admitted) < 3 * THREADS


@pytest.mark.usefixtures("eager_thread_switches")
def test_nobody_of_sixteen_threads_enters_once_a_deadline_was_seen_to_pass() -> None:
    now = [0.0]

    def clock() -> float:
        value = now[0]
        time.sleep(0)
        return value

    def pass_deadline(number: int) -> None:
        now[0] = number + 1.0
        assert gate.closed

    gate = AdmissionGate(clock)
    admitted = race(gate, pass_deadline)
    assert sum(admitted) > 0 and min(admitted) < 3 * THREADS


def test_it_counts_what_it_admitted_and_what_came_too_late_without_the_probes() -> None:
    gate = AdmissionGate()
    with gate.admit(), gate.admit(probe=True):
        pass
    gate.close()
    for _ in range(2):
        with pytest.raises(LateRequest):
            gate.admit()
    gate.admit(probe=True).release()
    assert (gate.counts().admitted, gate.counts().rejected_late) == (1, 2)
