from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator

import pytest
from sglang_worker.lifecycle.gate import AdmissionGate, LateRequest


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


ROUNDS = 3000
THREADS = 16
FAR_S = float("inf")


def preempting_clock() -> float:
    """Give the processor away between the gate's check and its count, where a race would live."""
    time.sleep(0)
    return 0.0


@pytest.fixture
def eager_thread_switches() -> Iterator[None]:
    """Let threads switch every few microseconds instead of 5 ms, so that races have a chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


class Crowd:
    """16 threads that admit and release as fast as they can until told to stop."""

    def __init__(self, gate: AdmissionGate) -> None:
        self._gate = gate
        self._stop = threading.Event()
        self.admitted = [0] * THREADS
        self.refused = [0] * THREADS
        self._threads = [threading.Thread(target=self._run, args=(i,)) for i in range(THREADS)]

    def _run(self, index: int) -> None:
        while not self._stop.is_set():
            try:
                ticket = self._gate.admit()
            except LateRequest:
                self.refused[index] += 1
                continue
            self.admitted[index] += 1
            ticket.release()
            ticket.release()

    def __enter__(self) -> Crowd:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.usefixtures("eager_thread_switches")
def test_nobody_of_sixteen_threads_enters_after_close_and_no_count_is_lost() -> None:
    """After `close` the in-flight count can only fall; anything else is a late admission."""
    gate = AdmissionGate(preempting_clock)
    rising: list[tuple[int, int]] = []
    with Crowd(gate) as crowd:
        for _ in range(ROUNDS):
            gate.open()
            gate.close_at(FAR_S)  # so that every admission reads the clock
            time.sleep(0)
            gate.close()
            last = gate.in_flight
            for _ in range(3):
                time.sleep(0)
                now = gate.in_flight
                if now > last:
                    rising.append((last, now))
                last = now
        gate.open()
    assert not rising
    assert gate.in_flight == 0
    assert min(crowd.admitted) > 0 and sum(crowd.refused) > 0


@pytest.mark.usefixtures("eager_thread_switches")
def test_nobody_of_sixteen_threads_enters_once_a_deadline_was_seen_to_pass() -> None:
    now = [0.0]

    def clock() -> float:
        value = now[0]
        time.sleep(0)
        return value

    gate = AdmissionGate(clock)
    rising: list[tuple[int, int]] = []
    with Crowd(gate):
        for round_number in range(ROUNDS // 3):
            gate.open()
            gate.close_at(round_number + 0.5)
            now[0] = round_number + 1.0
            last = gate.view()
            assert last.closed
            for _ in range(3):
                time.sleep(0)
                view = gate.view()
                if view.in_flight > last.in_flight:
                    rising.append((last.in_flight, view.in_flight))
                last = view
    assert not rising
    assert gate.in_flight == 0
