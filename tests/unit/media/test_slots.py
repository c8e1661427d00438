"""Who gets a place among the downloads, who waits for one, and for how long."""

from __future__ import annotations

import asyncio

import pytest
from sglang_worker.media.errors import MediaBusy
from sglang_worker.media.slots import DownloadSlots

SHORT_S, LONG_S = 0.05, 60.0


class Download:
    """Holds a place until it is told to end."""

    def __init__(self, slots: DownloadSlots, host: str) -> None:
        self.started = asyncio.Event()
        self._end = asyncio.Event()
        self.task = asyncio.ensure_future(self._run(slots, host))

    async def _run(self, slots: DownloadSlots, host: str) -> None:
        async with slots.place(host):
            self.started.set()
            await self._end.wait()

    async def end(self) -> None:
        self._end.set()
        await self.task


async def started(slots: DownloadSlots, *hosts: str) -> list[Download]:
    downloads = [Download(slots, host) for host in hosts]
    for one in downloads:
        await one.started.wait()
    return downloads


async def settled() -> None:
    """Every callback that is due has run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_slow_host_takes_its_own_places_and_no_others() -> None:
    slots = DownloadSlots(LONG_S, at_once=4)
    slow = await started(slots, "slow", "slow")
    third = Download(slots, "slow")
    await settled()
    assert not third.started.is_set()
    (other,) = await started(slots, "other")
    await other.end()
    await slow[0].end()
    await third.started.wait()
    for one in (slow[1], third):
        await one.end()


async def test_who_holds_fewest_goes_before_who_came_first() -> None:
    slots = DownloadSlots(LONG_S, at_once=4)
    held = await started(slots, "slow", "slow", "a", "b")
    first, second = Download(slots, "slow"), Download(slots, "other")
    await settled()
    await held[0].end()
    await second.started.wait()
    assert not first.started.is_set()
    for one in (*held[1:], second):
        await one.end()
    await first.started.wait()
    await first.end()
    assert slots.free == 4


async def test_one_account_cannot_fill_the_line() -> None:
    slots = DownloadSlots(LONG_S, at_once=1, most_waiting=4)
    (slow,) = await started(slots, "slow")
    waiting = [Download(slots, "slow") for _ in range(2)]
    await settled()
    with pytest.raises(MediaBusy, match="2 downloads wait already, 2 of them for the same server"):
        await Download(slots, "slow").task
    other = Download(slots, "other")
    await settled()
    assert slots.waiting == 3
    await slow.end()
    # The account holds none any more, so the order of arrival counts.
    for one in (*waiting, other):
        await one.started.wait()
        await one.end()


async def test_who_finds_no_place_in_time_is_told_so() -> None:
    slots = DownloadSlots(SHORT_S, at_once=1)
    (slow,) = await started(slots, "slow")
    with pytest.raises(MediaBusy, match=r"no place .* within 0\.05 s"):
        await Download(slots, "other").task
    assert slots.waiting == 0
    await slow.end()
    (next_one,) = await started(slots, "other")
    await next_one.end()


async def test_a_line_that_is_full_refuses_at_once() -> None:
    slots = DownloadSlots(LONG_S, at_once=1, most_waiting=1)
    (slow,) = await started(slots, "slow")
    waiting = Download(slots, "a")
    await settled()
    with pytest.raises(MediaBusy, match="1 downloads wait already"):
        await Download(slots, "b").task
    await slow.end()
    await waiting.started.wait()
    await waiting.end()


async def test_who_came_first_goes_first() -> None:
    slots = DownloadSlots(LONG_S, at_once=1)
    (slow,) = await started(slots, "slow")
    first, second = Download(slots, "a"), Download(slots, "b")
    await settled()
    await slow.end()
    await first.started.wait()
    assert not second.started.is_set()
    await first.end()
    await second.started.wait()
    await second.end()


async def test_who_stops_waiting_leaves_the_place_to_the_next() -> None:
    slots = DownloadSlots(LONG_S, at_once=1)
    (slow,) = await started(slots, "slow")
    leaving = Download(slots, "a")
    await settled()
    leaving.task.cancel()
    await settled()
    await slow.end()
    (next_one,) = await started(slots, "b")
    await next_one.end()


async def test_who_is_cancelled_while_the_place_is_handed_over_gives_it_back() -> None:
    slots = DownloadSlots(LONG_S, at_once=1)
    (slow,) = await started(slots, "slow")
    leaving = Download(slots, "a")
    await settled()
    # Called after the place was handed over and before the waiting task has run.
    slow.task.add_done_callback(lambda _: leaving.task.cancel())
    await slow.end()
    with pytest.raises(asyncio.CancelledError):
        await leaving.task
    assert not leaving.started.is_set()
    (next_one,) = await started(slots, "b")
    await next_one.end()
