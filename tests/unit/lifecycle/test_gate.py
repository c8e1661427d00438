from __future__ import annotations

import sys
import threading
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


@pytest.fixture
def eager_thread_switches() -> Iterator[None]:
    """Let threads switch every few microseconds instead of 5 ms, so that races have a chance."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("eager_thread_switches")
def test_sixteen_threads_racing_a_close_never_enter_late_and_never_lose_a_count() -> None:
    """Each round: 16 threads admit, the main thread closes. What entered after `close` returned
    would raise `late`; what was counted and not released would stay in `in_flight`."""
    gate = AdmissionGate()
    start = threading.Barrier(THREADS + 1)
    done = threading.Barrier(THREADS + 1)
    admitted = [0] * THREADS
    closed_flag = threading.Event()
    late: list[int] = []

    def requests(index: int) -> None:
        for round_number in range(ROUNDS):
            start.wait()
            for _ in range(3):
                was_closed = closed_flag.is_set()
                try:
                    ticket = gate.admit()
                except LateRequest:
                    continue
                if was_closed:
                    late.append(round_number)
                admitted[index] += 1
                ticket.release()
                ticket.release()
            done.wait()

    threads = [threading.Thread(target=requests, args=(i,)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    lost = []
    for round_number in range(ROUNDS):
        start.wait()
        gate.close()
        closed_flag.set()
        done.wait()
        if gate.in_flight != 0:
            lost.append(round_number)
        closed_flag.clear()
        gate.open()
    for thread in threads:
        thread.join()
    assert not late and not lost
    assert sum(admitted) > 0


@pytest.mark.usefixtures("eager_thread_switches")
def test_a_passing_deadline_and_the_in_flight_count_are_read_as_one() -> None:
    """Once a view says closed with n in flight, n can only fall: nobody enters behind its back."""
    gate = AdmissionGate()
    stop = threading.Event()
    rising: list[tuple[int, int]] = []

    def requests() -> None:
        while not stop.is_set():
            try:
                with gate.admit():
                    pass
            except LateRequest:
                continue

    threads = [threading.Thread(target=requests) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for _ in range(1000):
        gate.open()
        gate.close_at(0.0)
        last = gate.view()
        for _ in range(5):
            view = gate.view()
            assert view.closed and view.epoch == last.epoch
            if view.in_flight > last.in_flight:
                rising.append((last.in_flight, view.in_flight))
            last = view
    stop.set()
    for thread in threads:
        thread.join()
    assert not rising and gate.in_flight == 0
