from __future__ import annotations

import pytest

from tests.support.wait import WaitTimeout, wait_until, wait_until_async


def test_the_value_of_the_condition_is_returned() -> None:
    values = iter([0, "", "done"])
    assert wait_until(lambda: next(values), "done", interval_s=0) == "done"


def test_the_timeout_names_the_condition_and_what_was_seen() -> None:
    with pytest.raises(WaitTimeout, match=r"the lamp is on \(last seen: 0\)"):
        wait_until(lambda: 0, "the lamp is on", deadline_s=0.01, interval_s=0)


def test_only_listed_exceptions_count_as_not_yet() -> None:
    def refuse() -> bool:
        raise ConnectionRefusedError("down")

    with pytest.raises(WaitTimeout, match="down"):
        wait_until(refuse, "up", deadline_s=0.01, interval_s=0, ignore=(OSError,))
    with pytest.raises(ConnectionRefusedError):
        wait_until(refuse, "up", deadline_s=1)


async def test_coroutines_are_awaited() -> None:
    async def answer() -> int:
        return 3

    assert await wait_until_async(answer, "three") == 3
