"""What counts as healthy, decided on a fake clock."""

from __future__ import annotations

import pytest
from sglang_worker.observability.health.judge import Bounds, Judge, Reading, Wish

BOUNDS = Bounds(interval_s=10, retry_s=1, answer_s=5, stall_s=20, silent_s=100, control_s=200)
STEP_S = 0.5


class Bench:
    """A judge, the time, and an engine whose loop turns unless told otherwise."""

    def __init__(self, ranks: int = 1, *, cold: bool = False, turns_seen: bool = True) -> None:
        self.now_s = 1000.0
        self.judge = Judge(BOUNDS, ranks, self.now_s, cold=cold)
        self.turning = [True] * ranks
        self._turns = [0] * ranks
        self._turns_seen = turns_seen
        self.outputs = 0.0
        self.others = self.held = False
        self.control: str | None = None

    def read(self) -> None:
        for rank, turning in enumerate(self.turning):
            self._turns[rank] += turning
        self.judge.observe(
            Reading(
                turns=tuple(turn if self._turns_seen else None for turn in self._turns),
                outputs=self.outputs,
                others=self.others,
                control=self.control,
                held=self.held,
            ),
            self.now_s,
        )

    def spend(self, seconds: float, *, streaming: bool = False) -> None:
        for _ in range(int(seconds / STEP_S)):
            self.now_s += STEP_S
            self.outputs += streaming
            self.read()

    def send(self, rank: int = 0) -> None:
        self.judge.sent(rank, self.now_s)

    def wish(self, rank: int = 0) -> Wish:
        return self.judge.wish(rank, self.now_s)

    @property
    def fault(self) -> str | None:
        return self.judge.fault


@pytest.mark.parametrize("turns_seen", [True, False])
def test_an_idle_engine_that_does_not_move_must_answer_within_its_bound(turns_seen: bool) -> None:
    bench = Bench(turns_seen=turns_seen)
    bench.read()
    bench.turning = [False]
    bench.send()
    bench.spend(4.5)
    assert bench.fault is None
    bench.spend(1)
    assert "does not answer a probe" in str(bench.fault)
    assert bench.wish() is Wish.ABORT


def test_an_idle_engine_whose_loop_turns_may_be_starved_and_gets_three_times_the_bound() -> None:
    bench = Bench()
    bench.send()
    bench.spend(14.5)
    assert bench.fault is None
    assert bench.wish() is Wish.NOTHING, "a probe that is taken back could not pass any more"
    bench.spend(1)
    assert "though it turns" in str(bench.fault)
    assert bench.wish() is Wish.ABORT


def test_an_idle_engine_whose_loop_stops_turning_has_its_bound_from_the_last_turn() -> None:
    bench = Bench()
    bench.send()
    bench.spend(3)
    bench.turning = [False]
    bench.spend(4.5)
    assert bench.fault is None
    bench.spend(1)
    assert "does not answer a probe (5 s)" in str(bench.fault)


def test_the_fault_of_an_idle_engine_lasts_until_a_probe_passes() -> None:
    bench = Bench()
    bench.turning = [False]
    bench.send()
    bench.spend(6)
    bench.judge.aborted(0)
    assert bench.wish() is Wish.NOTHING, "the aborted probe has not ended yet"
    bench.judge.failed(0, "cancelled", bench.now_s)
    assert "does not answer" in str(bench.fault)
    bench.spend(1)
    assert bench.wish() is Wish.SEND, "a sick engine is asked again soon"
    bench.send()
    bench.spend(0.5)
    bench.judge.passed(0, bench.now_s)
    assert bench.fault is None


def test_a_probe_behind_a_long_prefill_is_no_fault_while_the_loop_turns() -> None:
    bench = Bench()
    bench.others = True
    bench.send()
    bench.spend(95)
    assert bench.fault is None


def test_an_engine_that_turns_and_says_nothing_at_all_is_a_fault_in_the_end() -> None:
    bench = Bench()
    bench.others = True
    bench.read()
    bench.send()
    bench.spend(101)
    assert "nothing comes out" in str(bench.fault)


def test_a_busy_engine_that_does_not_move_is_a_fault_and_recovers_with_its_next_move() -> None:
    bench = Bench()
    bench.others = True
    bench.read()
    bench.turning = [False]
    bench.send()
    bench.spend(19)
    assert bench.fault is None
    bench.spend(2)
    assert "makes no progress" in str(bench.fault)
    bench.turning = [True]
    bench.spend(0.5)
    assert bench.fault is None


def test_outputs_are_progress_where_the_loop_cannot_be_seen() -> None:
    bench = Bench(turns_seen=False)
    bench.others = True
    bench.send()
    bench.spend(60, streaming=True)
    assert bench.fault is None
    bench.spend(21)
    assert "makes no progress" in str(bench.fault)


def test_one_ranks_outputs_do_not_cover_for_another_rank() -> None:
    bench = Bench(ranks=2)
    bench.others = True
    bench.read()
    bench.turning = [True, False]
    bench.send(0)
    bench.send(1)
    bench.judge.passed(0, bench.now_s)
    bench.spend(21, streaming=True)
    assert "data-parallel rank 1" in str(bench.fault)


def test_the_end_of_work_gives_a_waiting_probe_its_time() -> None:
    bench = Bench()
    bench.others = True
    bench.send()
    bench.spend(30)
    bench.others, bench.turning = False, [False]
    bench.spend(4.5)
    assert bench.fault is None
    bench.spend(1)
    assert bench.fault is not None


def test_a_weight_update_is_no_fault_although_nothing_moves() -> None:
    bench = Bench()
    bench.send()
    bench.control, bench.turning = "update_weights", [False]
    bench.spend(199)
    assert bench.fault is None
    assert bench.wish() is Wish.NOTHING
    bench.spend(2)
    assert "update_weights does not end" in str(bench.fault)


def test_after_a_control_call_every_wait_begins_anew() -> None:
    bench = Bench()
    bench.send()
    bench.control, bench.turning = "update_weights", [False]
    bench.spend(60)
    bench.control, bench.turning = None, [True]
    bench.spend(4.5)
    assert bench.fault is None


def test_nobody_is_asked_while_a_pause_holds_requests() -> None:
    bench = Bench()
    bench.send()
    bench.held = True
    bench.read()
    assert bench.wish() is Wish.ABORT
    bench.judge.aborted(0)
    bench.judge.failed(0, "cancelled", bench.now_s)
    bench.spend(300)
    assert bench.fault is None
    assert bench.wish() is Wish.NOTHING


def test_a_paused_scheduler_must_turn_all_the_same() -> None:
    bench = Bench()
    bench.held, bench.turning = True, [False]
    bench.spend(22)
    assert "does not turn" in str(bench.fault)
    bench.turning = [True]
    bench.spend(0.5)
    assert bench.fault is None


def test_a_probe_that_a_pause_ended_says_nothing() -> None:
    bench = Bench()
    bench.send()
    bench.held = True
    bench.read()
    bench.judge.failed(0, "finished with 'abort'", bench.now_s)
    assert bench.fault is None


@pytest.mark.parametrize("reason", ["it yielded nothing", "it finished with 'error'"])
def test_a_bad_end_is_a_fault_at_once(reason: str) -> None:
    bench = Bench()
    bench.send()
    bench.judge.failed(0, reason, bench.now_s)
    assert reason in str(bench.fault)


def test_a_cold_engine_may_compile_for_long() -> None:
    bench = Bench(cold=True)
    bench.turning = [False]
    bench.send()
    bench.spend(99)
    assert bench.fault is None
    bench.spend(2)
    assert "never answered" in str(bench.fault)


def test_probes_come_at_their_interval_and_at_once_when_somebody_asks() -> None:
    bench = Bench()
    assert bench.wish() is Wish.SEND
    bench.send()
    bench.judge.passed(0, bench.now_s)
    bench.spend(9.5)
    assert bench.wish() is Wish.NOTHING
    bench.judge.probe_now()
    assert bench.wish() is Wish.SEND


def test_clients_requests_that_are_answered_save_the_probe() -> None:
    bench = Bench()
    bench.send()
    bench.judge.passed(0, bench.now_s)
    bench.others = True
    bench.spend(60, streaming=True)
    assert bench.wish() is Wish.NOTHING
    bench.spend(10.5)
    assert bench.wish() is Wish.SEND, "nothing came for a whole interval"


def test_answers_that_lay_unread_while_our_own_loop_was_blocked_are_no_fault() -> None:
    bench = Bench()
    bench.turning = [False]
    bench.send()
    bench.now_s += 30
    bench.read()
    assert bench.fault is None
    bench.spend(4)
    assert bench.fault is None
    bench.spend(2)
    assert bench.fault is not None


def test_an_engine_whose_progress_cannot_be_seen_is_asked_only_when_idle() -> None:
    judge = Judge(BOUNDS, 1, 0.0, cold=False)
    judge.observe(Reading(turns=(None,), others=True), 1.0)
    assert judge.wish(0, 1.0) is Wish.NOTHING
    judge.observe(Reading(turns=(None,)), 2.0)
    assert judge.wish(0, 2.0) is Wish.SEND


def test_a_sick_engine_gets_the_whole_bound_for_its_next_answer() -> None:
    bench = Bench()
    bench.send()
    bench.judge.failed(0, "it yielded nothing", bench.now_s)
    bench.spend(1)
    assert bench.wish() is Wish.SEND
    bench.send()
    bench.spend(4.5)
    assert bench.wish() is Wish.NOTHING, "it is slow, not late"
    bench.judge.passed(0, bench.now_s)
    assert bench.fault is None


def test_a_second_probe_that_hangs_is_taken_back_as_well() -> None:
    bench = Bench()
    bench.turning = [False]
    for _ in range(2):
        bench.send()
        bench.spend(6)
        assert bench.wish() is Wish.ABORT
        bench.judge.aborted(0)
        bench.judge.failed(0, "cancelled", bench.now_s)
        bench.spend(1)
        assert bench.wish() is Wish.SEND
