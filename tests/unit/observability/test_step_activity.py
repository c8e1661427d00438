"""A generator's steps as signs of progress for the health judge."""

from __future__ import annotations

from sglang_worker.observability.health.judge import Bounds, Judge
from sglang_worker.observability.health.steps import SILENT_PHASE_S, StepActivity

BOUNDS = Bounds(interval_s=10.0, stall_s=60.0, lag_s=1e9)


class World:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.step = 0
        self.held: list[str] = []
        self.activity = StepActivity(lambda: self.step, lambda: self.held, lambda: self.now_s)
        self.judge = Judge(BOUNDS, 1, 0.0, cold=False)
        self.probes = 0

    def run(self, seconds: float, *, steps: bool) -> str | None:
        """Look once a second; probes that are wished for wait behind the generation."""
        for _ in range(int(seconds)):
            self.now_s += 1.0
            self.step += steps
            self.judge.observe(self.activity.read(), self.now_s)
            if self.judge.wish(0, self.now_s).value == "send":
                self.judge.sent(0, self.now_s)
                self.probes += 1
        return self.judge.fault


def test_a_generation_of_hours_is_healthy_and_undisturbed_as_long_as_it_steps() -> None:
    world = World()
    world.judge.sent(0, 0.0)
    world.judge.passed(0, 0.0)
    world.held = ["generation-1"]
    assert world.run(7200, steps=True) is None
    assert world.probes == 0


def test_a_long_phase_without_steps_is_no_fault() -> None:
    world = World()
    world.held = ["generation-1"]
    world.run(10, steps=True)
    assert world.run(SILENT_PHASE_S, steps=False) is None
    assert world.run(10, steps=True) is None


def test_a_generator_that_hangs_is_found() -> None:
    world = World()
    world.held = ["generation-1"]
    world.run(10, steps=True)
    fault = world.run(SILENT_PHASE_S + BOUNDS.interval_s + BOUNDS.stall_s + 10, steps=False)
    assert fault is not None and "no progress" in fault


def test_an_idle_generator_shows_no_signs() -> None:
    world = World()
    first = world.activity.read()
    world.now_s += 100
    assert world.activity.read() == first
    assert not first.others
