from __future__ import annotations

import asyncio

import pytest
from sglang_worker.lifecycle.gate import LateRequest
from sglang_worker.lifecycle.states import Reason, State

from tests.unit.lifecycle.fakes import World, drained_world

# --- drain ----------------------------------------------------------------------------------------


async def test_drain_answers_202_and_ends_in_drained() -> None:
    world = await World().started()
    answer = await world.controller.drain()
    assert answer.status == 202
    assert answer.body == {"worker_id": "1234", "state": "draining", "reason": "routing_grace"}
    assert not world.discovery.present and not world.gate.closed
    await world.until(lambda: world.controller.state is State.DRAINED)
    assert world.gate.closed
    assert world.controller.status_answer().body == {
        "worker_id": "1234",
        "state": "drained",
        "reason": None,
    }
    assert (await world.controller.drain()).status == 200


async def test_requests_are_admitted_during_the_grace_and_late_ones_refused() -> None:
    world = await World(grace_s=0.05).started()
    await world.controller.drain()
    with world.gate.admit():
        await world.until(lambda: world.gate.closed)
        with pytest.raises(LateRequest):
            world.gate.admit()
        await world.until(lambda: world.core.life.reason is Reason.DYNAMO_INFLIGHT)
    await world.until(lambda: world.controller.state is State.DRAINED)


async def test_a_failed_withdrawal_keeps_admission_open_until_a_retry_confirms() -> None:
    world = await World().started()
    world.discovery.fail = 2
    for _ in range(2):
        answer = await world.controller.drain()
        assert answer.status == 503
        assert answer.body["state"] == "draining"
        assert answer.body["reason"] == "discovery_unregister_pending"
        assert "discovery is away" in answer.body["error"]
        world.gate.admit().release()
    assert (await world.controller.drain()).status == 202
    await world.until(lambda: world.controller.state is State.DRAINED)


async def test_a_slow_discovery_answers_503_and_its_late_confirmation_still_starts_the_grace() -> (
    None
):
    world = await World(discovery_timeout_s=0.02).started()
    world.discovery.hold = asyncio.Event()
    answer = await world.controller.drain()
    assert answer.status == 503 and answer.body["reason"] == "discovery_unregister_pending"
    world.discovery.hold.set()
    await world.until(lambda: world.controller.state is State.DRAINED)
    assert world.discovery.calls == ["register", "withdraw"]


async def test_a_double_drain_joins_the_attempt_under_way() -> None:
    world = await World().started()
    world.discovery.hold = asyncio.Event()
    drains = [asyncio.ensure_future(world.controller.drain()) for _ in range(2)]
    await asyncio.sleep(0.01)
    world.discovery.hold.set()
    assert [(await drain).status for drain in drains] == [202, 202]
    assert world.discovery.calls == ["register", "withdraw"]


async def test_repeated_drains_never_extend_the_deadline() -> None:
    world = await World(grace_s=0.1).started()
    await world.controller.drain()
    closes_at_s = world.core.life.closes_at_s
    for _ in range(3):
        await asyncio.sleep(0.01)
        assert (await world.controller.drain()).status == 202
    assert world.core.life.closes_at_s == closes_at_s


async def test_a_caller_that_hangs_up_stops_neither_drain_nor_resume() -> None:
    world = await World().started()
    world.discovery.hold = asyncio.Event()
    caller = asyncio.ensure_future(world.controller.drain())
    await asyncio.sleep(0.01)
    caller.cancel()
    world.discovery.hold.set()
    await world.until(lambda: world.controller.state is State.DRAINED)

    world.discovery.hold = asyncio.Event()
    caller = asyncio.ensure_future(world.controller.resume())
    await asyncio.sleep(0.01)
    caller.cancel()
    world.discovery.hold.set()
    await world.until(lambda: world.discovery.present)
    assert world.controller.state is State.SERVING and not world.gate.closed


async def test_drain_without_the_tcp_response_plane_is_a_conflict() -> None:
    world = await World(can_drain=False).started()
    answer = await world.controller.drain()
    assert answer.status == 409 and answer.body["state"] == "serving"
    assert world.discovery.present


# --- resume ---------------------------------------------------------------------------------------


async def test_resume_opens_admission_before_it_registers() -> None:
    world = await drained_world()
    world.discovery.hold = asyncio.Event()
    resume = asyncio.ensure_future(world.controller.resume())
    await world.until(lambda: world.discovery.calls[-1] == "register")
    world.gate.admit().release()
    assert not world.discovery.present
    world.discovery.hold.set()
    answer = await resume
    assert answer.status == 200
    assert answer.body == {"worker_id": "1234", "state": "serving", "reason": None}


async def test_what_discovery_confirmed_is_shown_before_resume_answers() -> None:
    world = await drained_world()
    world.discovery.hold = asyncio.Event()
    resume = asyncio.ensure_future(world.controller.resume())
    await world.until(lambda: world.discovery.calls[-1] == "register")
    shown_before = len(world.publisher.shown)
    world.discovery.hold.set()
    await resume
    assert world.publisher.shown[shown_before:] == ["serving"], "nothing was pushed after it"


async def test_drained_is_no_longer_shown_when_the_gate_opens() -> None:
    world = await drained_world()
    world.publisher.hold = asyncio.Event()
    resumes = [asyncio.ensure_future(world.controller.resume()) for _ in range(2)]
    await asyncio.sleep(0.02)
    assert world.gate.closed and world.discovery.calls[-1] == "withdraw"
    world.publisher.hold.set()
    assert [(await resume).status for resume in resumes] == [200, 200]
    assert world.publisher.acknowledged[0] == ("serving", True)


async def test_resume_during_the_grace_cancels_the_deadline() -> None:
    world = await World(grace_s=0.05).started()
    await world.controller.drain()
    assert (await world.controller.resume()).status == 200
    await asyncio.sleep(0.1)
    assert not world.gate.closed and world.controller.state is State.SERVING


async def test_resume_with_requests_in_flight_keeps_them() -> None:
    world = await World().started()
    ticket = world.gate.admit()
    await world.controller.drain()
    await world.until(lambda: world.core.life.reason is Reason.DYNAMO_INFLIGHT)
    assert (await world.controller.resume()).status == 200
    assert world.gate.in_flight == 1
    ticket.release()
    await asyncio.sleep(0.15)
    assert world.controller.state is State.SERVING
    assert "drained" not in world.publisher.shown


async def test_resume_while_a_withdrawal_hangs_registers_after_it() -> None:
    world = await World().started()
    world.discovery.hold = asyncio.Event()
    drain = asyncio.ensure_future(world.controller.drain())
    await asyncio.sleep(0.01)
    resume = asyncio.ensure_future(world.controller.resume())
    answer = await drain
    assert answer.status == 409 and answer.body["state"] == "serving"
    world.discovery.hold.set()
    assert (await resume).status == 200
    assert world.discovery.present
    assert world.discovery.calls == ["register", "withdraw", "register"]


async def test_a_failed_registration_answers_503_serving_with_the_gate_open() -> None:
    world = await drained_world()
    world.discovery.fail = 1
    answer = await world.controller.resume()
    assert answer.status == 503 and answer.body["state"] == "serving"
    assert not world.gate.closed
    assert (await world.controller.resume()).status == 200
    assert world.discovery.present


async def test_drain_during_resume_wins() -> None:
    world = await drained_world()
    world.discovery.hold = asyncio.Event()
    resume = asyncio.ensure_future(world.controller.resume())
    await world.until(lambda: world.discovery.calls[-1] == "register")
    drain = asyncio.ensure_future(world.controller.drain())
    assert (await resume).status == 409
    world.discovery.hold.set()
    assert (await drain).status == 202
    await world.until(lambda: world.controller.state is State.DRAINED)
    assert not world.discovery.present and world.gate.closed


# --- stop -----------------------------------------------------------------------------------------


async def test_stopping_is_shown_before_the_gate_closes() -> None:
    world = await World(grace_s=0.02).started()
    await world.controller.stop_soon()
    await world.until(lambda: world.core.life.complete)
    assert world.publisher.acknowledged == [("stopping", False)]
    assert world.gate.closed and not world.discovery.present


async def test_stopping_refuses_everything_with_409() -> None:
    world = await World().started()
    await world.controller.stop_soon()
    controller = world.controller
    for call in (
        controller.drain(),
        controller.resume(),
        controller.pause({}),
        controller.continue_({}),
        controller.release({}),
        controller.resume_memory({}),
    ):
        answer = await call
        assert answer.status == 409 and answer.body["state"] == "stopping"


async def test_stop_from_paused_continues_the_engine() -> None:
    world = await World().started()
    await world.controller.pause({})
    await world.controller.stop_soon()
    assert world.engine.calls[-1] == ("continue",)
    await world.until(lambda: world.core.life.complete)


async def test_stop_supersedes_a_resume_that_waits_for_discovery() -> None:
    world = await drained_world()
    world.discovery.hold = asyncio.Event()
    resume = asyncio.ensure_future(world.controller.resume())
    await world.until(lambda: world.discovery.calls[-1] == "register")
    stop = world.controller.stop_soon()
    answer = await resume
    assert answer.status == 409 and answer.body["state"] == "stopping"
    world.discovery.hold.set()
    await stop
    assert not world.discovery.present


async def test_stop_keeps_withdrawing_while_discovery_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sglang_worker.lifecycle.controller.WITHDRAW_RETRY_S", 0.005)
    world = await World().started()
    world.discovery.fail = 3
    await world.controller.stop_soon()
    assert world.discovery.calls.count("withdraw") == 4
    assert not world.discovery.present


async def test_stop_during_the_undo_of_a_failed_pause_is_not_undone_by_it() -> None:
    world = await World().started()
    world.engine.fail = {"pause"}
    pause = asyncio.ensure_future(world.controller.pause({}))
    await world.until(lambda: ("continue",) in world.engine.calls)
    await world.controller.stop_soon()
    assert (await pause).status == 500
    await world.registration.settled()
    assert not world.registration.desired and not world.discovery.present


async def test_a_stop_before_the_first_registration_keeps_the_worker_out_of_discovery() -> None:
    world = World()
    await world.controller.stop_soon()
    await world.controller.start()
    await world.registration.settled()
    assert not world.registration.desired and not world.discovery.present
