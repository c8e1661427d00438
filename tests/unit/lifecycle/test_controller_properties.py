"""Random interleavings of everything that can happen to the lifecycle, checked after each step."""

from __future__ import annotations

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sglang_worker.lifecycle.gate import LateRequest, Ticket
from sglang_worker.lifecycle.states import Answer, State

from tests.unit.lifecycle.fakes import World

TURNS = st.sampled_from([0, 1, 2, 4, 8, 16])


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class LifecycleMachine(RuleBasedStateMachine):
    """Discovery answers, fails or hangs when the rules say so; time passes by rule only."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.tickets: list[Ticket] = []
        self.answers: list[asyncio.Future[Answer]] = []
        self.admitted_since_drained = False
        self.world = self.run(World(grace_s=5.0, clock=self.clock).started())
        self.turns()

    def run(self, work):  # type: ignore[no-untyped-def]
        return self.loop.run_until_complete(work)

    def turns(self, count: int = 12) -> None:
        async def idle() -> None:
            for _ in range(count):
                await asyncio.sleep(0)

        self.run(idle())

    def call(self, work, turns: int) -> None:  # type: ignore[no-untyped-def]
        """``turns``: how far the call gets before the next rule interferes."""
        self.answers.append(asyncio.ensure_future(work, loop=self.loop))
        self.turns(turns)

    @rule(name=st.sampled_from(["drain", "resume"]), turns=TURNS)
    def ask(self, name: str, turns: int) -> None:
        self.call(getattr(self.world.controller, name)(), turns)

    @rule(name=st.sampled_from(["pause", "continue_", "release", "resume_memory"]), turns=TURNS)
    def operate(self, name: str, turns: int) -> None:
        self.call(getattr(self.world.controller, name)({}), turns)

    @precondition(lambda self: self.world.controller.state is not State.STOPPING)
    @rule(chance=st.integers(0, 7), turns=TURNS)
    def stop(self, chance: int, turns: int) -> None:
        if chance == 0:
            self.loop.call_soon(self.world.controller.stop_soon)
            self.turns(1 + turns)

    @rule()
    def request_arrives(self) -> None:
        try:
            self.tickets.append(self.world.gate.admit())
        except LateRequest:
            return
        assert self.world.controller.state is not State.DRAINED

    @precondition(lambda self: self.tickets)
    @rule()
    def request_ends(self) -> None:
        self.tickets.pop().release()

    @rule(seconds=st.sampled_from([0.1, 2.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now_s += seconds
        self.run(asyncio.sleep(0.004))

    @rule()
    def a_while_of_polling(self) -> None:
        self.run(asyncio.sleep(0.07))

    @rule(fail=st.sampled_from([0, 1, -1]))
    def discovery_fails(self, fail: int) -> None:
        self.world.discovery.fail = fail

    @rule()
    def discovery_hangs(self) -> None:
        if self.world.discovery.hold is None:
            self.world.discovery.hold = asyncio.Event()

    @rule()
    def discovery_answers(self) -> None:
        hold, self.world.discovery.hold = self.world.discovery.hold, None
        if hold is not None:
            hold.set()
        self.turns()

    @rule(operation=st.sampled_from(["pause", "continue", "release", "resume_memory"]))
    def engine_fails(self, operation: str) -> None:
        self.world.engine.fail = {operation}

    @rule()
    def engine_works(self) -> None:
        self.world.engine.fail = set()

    @rule()
    def engine_hangs(self) -> None:
        if self.world.engine.hold is None:
            self.world.engine.hold = asyncio.Event()

    @rule()
    def engine_answers(self) -> None:
        hold, self.world.engine.hold = self.world.engine.hold, None
        if hold is not None:
            hold.set()
        self.turns()

    @invariant()
    def drained_means_finished(self) -> None:
        if self.world.controller.state is State.DRAINED:
            view = self.world.gate.view()
            assert view.closed and view.in_flight == 0
            assert not self.world.discovery.present

    @invariant()
    def a_serving_or_paused_worker_admits(self) -> None:
        if self.world.controller.state in (State.SERVING, State.PAUSED):
            assert not self.world.gate.closed

    @invariant()
    def registration_is_wanted_only_while_serving(self) -> None:
        registration = self.world.registration
        if registration.desired:
            assert self.world.controller.state is State.SERVING

    @invariant()
    def nothing_is_written_against_the_last_wish_once_discovery_is_quiet(self) -> None:
        registration = self.world.registration
        if not registration.busy and registration.confirmed.value != "unknown":
            assert self.world.discovery.present is (registration.confirmed.value == "yes")

    @invariant()
    def refusals_are_sentences(self) -> None:
        for answer in self.answers:
            if answer.done():
                body = answer.result().body
                assert (answer.result().status in (200, 202)) is ("error" not in body)

    def teardown(self) -> None:
        self.engine_answers()
        if self.world.discovery.hold is not None:
            self.world.discovery.hold.set()
        self.world.discovery.fail = 0
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.turns()
        self.loop.close()


TestLifecycleProperties = LifecycleMachine.TestCase
TestLifecycleProperties.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
