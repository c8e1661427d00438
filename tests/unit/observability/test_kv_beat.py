"""The beat of the KV events' relay outlives an event plane that fails for a while."""

from __future__ import annotations

import asyncio
import logging

import pytest
from sglang_worker.observability.kv_events.relay import KvEventRelay
from sglang_worker.observability.kv_events.sources import KvSource


class Publisher:
    """Fails its first ``failures`` events. Stands for the runtime's, whose event plane cannot be
    made to fail and recover."""

    def __init__(self, failures: int) -> None:
        self._failures = failures
        self.announced = 0
        self.reached = asyncio.Event()

    def publish_stored(self, *_: object) -> None:
        if self._failures:
            self._failures -= 1
            raise RuntimeError("the event plane is gone")
        self.announced += 1
        if self.announced == 3:
            self.reached.set()

    def shutdown(self) -> None: ...


async def test_a_failing_beat_goes_on_and_is_told_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = [Publisher(failures=5), Publisher(failures=0)]
    waiting = iter(made)
    monkeypatch.setattr(
        "sglang_worker.engine.dynamo_compat_streams.relay_kv_events",
        lambda *_args, **_named: next(waiting),
    )
    sources = tuple(KvSource(rank, f"ipc:///nowhere/{rank}", "", 4) for rank in range(2))
    relay = KvEventRelay(object(), sources, lambda: 7, beat_s=0.001)
    with caplog.at_level(logging.INFO):
        await relay.start()
        try:
            for one in made:
                await asyncio.wait_for(one.reached.wait(), 30)
        finally:
            relay.stop()
    told = [one.getMessage() for one in caplog.records if "rank 0" in one.getMessage()]
    assert sum("may not notice lost KV events" in one for one in told) == 1
    assert sum("announced again" in one for one in told) == 1
    assert not [
        one
        for one in caplog.records
        if "lost KV events of data-parallel rank 1" in (one.getMessage())
    ]
