from __future__ import annotations

import asyncio

from sglang_worker.lifecycle.registration import Confirmed, RegistrationOwner, Written

from tests.unit.lifecycle.fakes import FakeDiscovery


async def registered_owner() -> tuple[RegistrationOwner, FakeDiscovery]:
    discovery = FakeDiscovery()
    owner = RegistrationOwner(discovery)
    assert await owner.wish(True) is Written.CONFIRMED
    return owner, discovery


async def test_a_confirmed_write_is_known_as_such() -> None:
    owner, discovery = await registered_owner()
    assert owner.confirmed is Confirmed.YES and discovery.present
    assert await owner.wish(False) is Written.CONFIRMED
    assert owner.confirmed is Confirmed.NO and not discovery.present


async def test_a_failed_write_leaves_the_outcome_unknown_and_names_the_cause() -> None:
    owner, discovery = await registered_owner()
    discovery.fail = 1
    assert await owner.wish(False) is Written.FAILED
    assert owner.confirmed is Confirmed.UNKNOWN
    assert owner.last_error == "discovery is away"
    assert await owner.wish(False) is Written.CONFIRMED
    assert owner.last_error is None


async def test_a_slow_withdrawal_never_lands_after_a_registration() -> None:
    owner, discovery = await registered_owner()
    discovery.hold = asyncio.Event()
    withdrawal = owner.wish_soon(False)
    await asyncio.sleep(0.01)
    registration = owner.wish_soon(True)
    assert await withdrawal is Written.SUPERSEDED
    await asyncio.sleep(0.01)
    assert discovery.calls == ["register", "withdraw"]
    discovery.hold.set()
    assert await registration is Written.CONFIRMED
    assert discovery.calls == ["register", "withdraw", "register"]
    assert discovery.present and owner.confirmed is Confirmed.YES


async def test_equal_wishes_join_the_attempt_under_way() -> None:
    owner, discovery = await registered_owner()
    discovery.hold = asyncio.Event()
    wishes = [owner.wish_soon(False) for _ in range(5)]
    await asyncio.sleep(0.01)
    wishes.append(owner.wish_soon(False))
    discovery.hold.set()
    assert {await wish for wish in wishes} == {Written.CONFIRMED}
    assert discovery.calls == ["register", "withdraw"]


async def test_a_wish_that_returns_while_its_write_still_runs_is_not_written_twice() -> None:
    owner, discovery = await registered_owner()
    discovery.hold = asyncio.Event()
    first = owner.wish_soon(False)
    await asyncio.sleep(0.01)
    between = owner.wish_soon(True)
    last = owner.wish_soon(False)
    discovery.hold.set()
    assert await first is Written.SUPERSEDED and await between is Written.SUPERSEDED
    assert await last is Written.CONFIRMED
    assert discovery.calls == ["register", "withdraw"]


async def test_registering_again_is_a_real_call() -> None:
    owner, discovery = await registered_owner()
    await owner.wish(True)
    assert discovery.calls == ["register", "register"]


async def test_a_caller_that_hangs_up_does_not_cancel_the_write() -> None:
    owner, discovery = await registered_owner()
    discovery.hold = asyncio.Event()
    caller = asyncio.ensure_future(owner.wish(False))
    await asyncio.sleep(0.01)
    caller.cancel()
    discovery.hold.set()
    await owner.settled()
    assert not discovery.present and owner.confirmed is Confirmed.NO


async def test_failed_writes_are_counted_by_direction_and_dated() -> None:
    discovery, now = FakeDiscovery(), [50.0]
    owner = RegistrationOwner(discovery, clock=lambda: now[0])
    await owner.wish(True)
    assert owner.failed_at_s is None
    discovery.fail = 1
    await owner.wish(False)
    assert (owner.failures, owner.failed_at_s) == ({True: 0, False: 1}, 50.0)
    now[0] = 60.0
    await owner.wish(False)
    assert owner.failed_at_s == 50.0, "a later success does not change when the last one failed"
