from __future__ import annotations

import pytest
from sglang_worker.lifecycle import listed_discovery
from sglang_worker.lifecycle.listed_discovery import ListedDiscovery

from tests.unit.lifecycle.fakes import FakeDiscovery


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_discovery, "SETTLE_S", 0.05)


async def test_a_withdrawal_whose_key_is_gone_already_is_confirmed() -> None:
    calls = FakeDiscovery()
    discovery = ListedDiscovery(calls, lambda: calls.present)
    await discovery.register()
    calls.present = False
    calls.fail = 1
    await discovery.withdraw()


async def test_a_withdrawal_that_failed_and_still_shows_the_worker_is_not_confirmed() -> None:
    calls = FakeDiscovery()
    discovery = ListedDiscovery(calls, lambda: calls.present)
    await discovery.register()
    calls.fail = 1
    with pytest.raises(Exception, match="discovery is away"):
        await discovery.withdraw()


async def test_a_view_that_never_showed_the_worker_proves_nothing() -> None:
    calls = FakeDiscovery()
    discovery = ListedDiscovery(calls, lambda: False)
    await discovery.register()
    calls.fail = 1
    with pytest.raises(Exception, match="discovery is away"):
        await discovery.withdraw()
