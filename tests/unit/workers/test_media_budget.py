"""Room that a request holds while its media are processed."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from sglang_worker.workers.media_budget import Held


def test_what_is_held_is_given_back_once() -> None:
    held, given_back = Held(), []
    held.add(lambda: given_back.append("room"))
    assert given_back == []
    held.release()
    held.release()
    assert given_back == ["room"]


def test_what_comes_after_the_release_is_given_back_at_once() -> None:
    held, given_back = Held(), []
    held.release()
    held.add(lambda: given_back.append("room"))
    assert given_back == ["room"]


async def test_room_stays_taken_while_a_thread_works_for_a_request_that_was_given_up() -> None:
    held, given_back = Held(), []
    held.add(lambda: given_back.append("room"))
    works: list[Future[None]] = [Future(), Future()]
    for work in works:
        held.keep_for(work)
    held.release()
    works[0].set_result(None)
    await asyncio.sleep(0)
    assert given_back == []
    works[1].set_exception(MemoryError())
    await asyncio.sleep(0)
    assert given_back == ["room"]


async def test_work_that_ends_before_the_release_gives_nothing_back() -> None:
    held, given_back = Held(), []
    held.add(lambda: given_back.append("room"))
    work: Future[None] = Future()
    held.keep_for(work)
    work.set_result(None)
    await asyncio.sleep(0)
    assert given_back == []
    held.release()
    assert given_back == ["room"]
