"""Room that is shared by size, in order, with a bounded wait."""

from __future__ import annotations

import asyncio

import pytest
from sglang_worker.media.errors import MediaBusy
from sglang_worker.media.room import Room

LONG_S, SHORT_S = 60.0, 0.02


async def test_a_large_share_is_not_overtaken() -> None:
    room = Room(4, LONG_S, "it")
    first = await room.take(2)
    large = asyncio.ensure_future(room.take(4))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(room.take(1))
    await asyncio.sleep(0)
    assert not small.done()
    first()
    (await large)()
    (await small)()
    assert room.free == 4


async def test_giving_back_twice_gives_back_once() -> None:
    room = Room(4, LONG_S, "it")
    give_back = await room.take(3)
    give_back()
    give_back()
    assert room.free == 4


async def test_a_wait_is_bounded_and_leaves_the_line() -> None:
    room = Room(4, SHORT_S, "one more")
    first = await room.take(4)
    with pytest.raises(MediaBusy, match=r"no room for one more within 0\.02 s"):
        await room.take(1)
    first()
    assert room.free == 4


async def test_a_share_handed_over_to_a_cancelled_wait_comes_back() -> None:
    room = Room(1, LONG_S, "it")
    first = await room.take(1)
    waiting = asyncio.ensure_future(room.take(1))
    await asyncio.sleep(0)
    first()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert room.free == 1


async def test_a_cancelled_wait_lets_those_behind_it_in() -> None:
    room = Room(4, LONG_S, "it")
    await room.take(2)
    large = asyncio.ensure_future(room.take(4))
    await asyncio.sleep(0)
    small = asyncio.ensure_future(room.take(1))
    await asyncio.sleep(0)
    large.cancel()
    (await small)()
    assert room.free == 2
