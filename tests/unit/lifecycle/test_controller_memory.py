"""Pause, continue and memory, as the controller answers them."""

from __future__ import annotations

import asyncio

from sglang_worker.lifecycle.registration import Confirmed
from sglang_worker.lifecycle.states import State

from tests.unit.lifecycle.fakes import World, drained_world


async def test_pause_and_continue_move_the_worker_out_of_discovery_and_back() -> None:
    world = await World().started()
    answer = await world.controller.pause({"mode": "in_place"})
    assert answer.status == 200 and answer.body["state"] == "paused"
    assert not world.discovery.present and not world.gate.closed
    assert (await world.controller.drain()).status == 409
    assert (await world.controller.resume()).status == 409
    assert not world.controller.probe_may_use_engine
    answer = await world.controller.continue_({})
    assert answer.status == 200 and answer.body["state"] == "serving"
    assert world.discovery.present and world.controller.probe_may_use_engine
    assert world.engine.calls == [("pause", "in_place"), ("continue",)]


async def test_an_unknown_pause_mode_changes_nothing() -> None:
    world = await World().started()
    answer = await world.controller.pause({"mode": "sometimes"})
    assert answer.status == 400 and "in_place" in answer.body["error"]
    assert world.engine.calls == [] and world.controller.state is State.SERVING


async def test_a_pause_whose_withdrawal_failed_is_still_a_pause() -> None:
    world = await World().started()
    world.discovery.fail = 1
    answer = await world.controller.pause({})
    assert answer.status == 503 and answer.body["state"] == "paused"
    assert (await world.controller.pause({})).status == 200
    assert not world.discovery.present


async def test_a_pause_that_sglang_refused_leaves_the_worker_serving() -> None:
    world = await World().started()
    world.engine.fail = {"pause"}
    answer = await world.controller.pause({})
    assert answer.status == 500 and "pause failed in SGLang" in answer.body["error"]
    await world.until(lambda: world.discovery.present)
    assert world.controller.state is State.SERVING


async def test_continue_of_a_drained_worker_never_puts_it_back_into_discovery() -> None:
    world = await drained_world()
    answer = await world.controller.continue_({})
    assert answer.status == 200 and answer.body["state"] == "drained"
    await world.registration.settled()
    assert not world.discovery.present and world.gate.closed
    assert world.registration.confirmed is Confirmed.NO


async def test_pause_and_drain_exclude_each_other_while_sglang_is_slow() -> None:
    world = await World().started()
    world.engine.hold = asyncio.Event()
    pause = asyncio.ensure_future(world.controller.pause({}))
    await asyncio.sleep(0.01)
    assert (await world.controller.drain()).status == 409
    world.engine.hold.set()
    assert (await pause).status == 200


async def test_release_from_serving_withdraws_pauses_and_releases() -> None:
    world = await World().started()
    answer = await world.controller.release({"tags": ["weights", "kv_cache"]})
    assert answer.status == 200 and answer.body["state"] == "paused"
    assert world.engine.calls == [("pause", "in_place"), ("release", "kv_cache", "weights")]
    for refused in (world.controller.drain(), world.controller.resume()):
        assert (await refused).status == 409
    assert (await world.controller.continue_({})).status == 409
    assert (await world.controller.resume_memory({"tags": ["weights"]})).status == 200
    assert not world.discovery.present
    answer = await world.controller.resume_memory({})
    assert answer.status == 200 and answer.body["state"] == "serving"
    assert world.discovery.present and world.engine.calls[-1] == ("continue",)


async def test_release_with_requests_in_flight_is_refused_with_their_count() -> None:
    world = await World().started()
    with world.gate.admit(), world.gate.admit():
        answer = await world.controller.release({})
    assert answer.status == 409 and answer.body["error"].startswith("2 requests")
    assert world.discovery.present and world.engine.calls == []


async def test_a_request_that_arrives_during_the_withdrawal_undoes_the_release() -> None:
    world = await World().started()
    world.discovery.hold = asyncio.Event()
    release = asyncio.ensure_future(world.controller.release({}))
    await asyncio.sleep(0.01)
    ticket = world.gate.admit()
    world.discovery.hold.set()
    answer = await release
    assert answer.status == 409 and answer.body["state"] == "serving"
    await world.until(lambda: world.discovery.present)
    assert ("continue",) in world.engine.calls
    assert not any(call[0] == "release" for call in world.engine.calls)
    ticket.release()


async def test_a_release_that_sglang_refused_is_undone() -> None:
    world = await World().started()
    world.engine.fail = {"release"}
    answer = await world.controller.release({})
    assert answer.status == 500 and "release failed in SGLang" in answer.body["error"]
    assert world.controller.state is State.SERVING and world.discovery.present


async def test_release_in_drained_touches_neither_pause_nor_discovery() -> None:
    world = await drained_world()
    assert (await world.controller.release({})).status == 200
    assert (await world.controller.resume()).status == 409
    assert not world.controller.probe_may_use_engine
    assert (await world.controller.resume_memory({})).status == 200
    assert world.controller.state is State.DRAINED and not world.discovery.present
    assert ("continue",) not in world.engine.calls
    assert (await world.controller.resume()).status == 200


async def test_an_unknown_memory_tag_is_named() -> None:
    world = await World().started()
    answer = await world.controller.release({"tags": ["weight"]})
    assert answer.status == 400 and "weight" in answer.body["error"]


async def test_nothing_runs_the_model_on_released_memory() -> None:
    world = await drained_world()
    assert (await world.controller.release({"tags": ["kv_cache"]})).status == 200
    for operation in ("generate", "async_generate", "encode", "async_encode"):
        assert "released" in (world.controller.guard(operation) or "")
    assert world.controller.guard("flush_cache") is None
    assert (await world.controller.resume_memory({})).status == 200
    assert world.controller.guard("generate") is None
