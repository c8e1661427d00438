"""The worker's life as metrics, from the real lifecycle objects with a fake discovery and clock."""

from __future__ import annotations

from typing import Any

from sglang_worker.lifecycle.completion import CompletionCheck, CompletionProbes
from sglang_worker.lifecycle.controller import LifecycleController
from sglang_worker.lifecycle.core import CoreSettings, LifecycleCore
from sglang_worker.lifecycle.gate import AdmissionGate
from sglang_worker.lifecycle.registration import RegistrationOwner
from sglang_worker.lifecycle.watchdog import Watchdog
from sglang_worker.lifecycle.wiring import SilentPublisher
from sglang_worker.observability.kv_events.counters import EventKind, Fault, KvEventCounters
from sglang_worker.observability.metrics.exposition import Exposition
from sglang_worker.observability.metrics.kv_events import KvEventSource
from sglang_worker.observability.metrics.sources import (
    DiscoverySource,
    LifecycleSource,
    RequestSource,
    Source,
)

from tests.support.exposition import OWN, Scrape, faults, own_faults
from tests.support.wait import wait_until_async
from tests.unit.lifecycle.fakes import FakeDiscovery


class Life:
    """What `lifecycle.wiring.WorkerLifecycle` holds, without runtime, sockets and signals."""

    def __init__(self) -> None:
        self.now = 100.0
        self.held, self.unsent, self.cancelled = 0, 0, 0
        clock = lambda: self.now  # noqa: E731
        self.discovery = FakeDiscovery()
        self.gate = AdmissionGate(clock)
        self.registration = RegistrationOwner(self.discovery, clock=clock)
        self.probes = CompletionProbes(lambda: self.unsent, lambda: self.held)
        self.watchdog = Watchdog(clock=clock)
        core = LifecycleCore(
            CoreSettings(worker_id="1", grace_s=0.0),
            self.gate,
            self.registration,
            CompletionCheck(self.gate, self.probes),
            SilentPublisher(),
            clock,
        )
        self.controller = LifecycleController(core, None)  # type: ignore[arg-type]

    def scrape(self) -> Scrape:
        life: Any = self
        sources: dict[str, Source] = {
            "lifecycle": LifecycleSource(life),
            "requests": RequestSource(life, lambda: self.cancelled),
            "discovery": DiscoverySource(life),
        }
        seen = Scrape(Exposition(sources).text())
        assert faults(seen) == own_faults(seen) == []
        assert sum(seen.values(f"{OWN}lifecycle_state")) == 1
        assert sum(seen.values(f"{OWN}registration_confirmed")) == 1
        assert sum(seen.values(f"{OWN}scrape_errors_total")) == 0
        return seen

    async def until(self, state: str) -> None:
        await wait_until_async(lambda: self.controller.state.value == state, state)


async def test_a_drain_is_visible_from_its_first_withdrawal_to_its_end() -> None:
    life = Life()
    await life.controller.start()
    ticket = life.gate.admit()
    before = life.scrape()
    assert before.values(f"{OWN}unsent_response_bytes") == []
    assert before.value(f"{OWN}registration_confirmed", answer="yes") == 1

    life.now = 110.0
    await life.controller.drain()
    life.held, life.unsent = 3, 4096
    life.now = 117.0
    during = life.scrape()
    assert during.value(f"{OWN}lifecycle_state", state="draining") == 1
    assert during.value(f"{OWN}drain_elapsed_seconds") == 7
    assert during.value(f"{OWN}requests_in_flight") == 1
    assert during.value(f"{OWN}engine_held_requests") == 3
    assert during.value(f"{OWN}unsent_response_bytes") == 4096
    assert during.value(f"{OWN}registration_desired") == 0

    ticket.release()
    life.held = life.unsent = 0
    await life.until("drained")
    after = life.scrape()
    assert after.value(f"{OWN}drain_duration_seconds_count") == 1
    assert after.value(f"{OWN}drain_duration_seconds_sum") == 7
    assert after.value(f"{OWN}drain_elapsed_seconds") == 0
    assert after.value(f"{OWN}lifecycle_seconds_total", state="serving", reason="") == 10


async def test_a_discovery_that_fails_is_visible_without_its_words() -> None:
    life = Life()
    await life.controller.start()
    assert life.scrape().values(f"{OWN}discovery_last_error_age_seconds") == []
    life.discovery.fail = 1
    await life.controller.drain()
    life.now += 5
    seen = life.scrape()
    assert seen.value(f"{OWN}discovery_errors_total", operation="withdraw") == 1
    assert seen.value(f"{OWN}discovery_failing") == 1
    assert seen.value(f"{OWN}discovery_last_error_age_seconds") == 5
    assert seen.value(f"{OWN}registration_confirmed", answer="unknown") == 1
    assert seen.value(f"{OWN}lifecycle_waiting", reason="discovery_unregister_pending") == 1
    assert "discovery is away" not in str([sample.labels for sample in seen.samples])


async def test_the_stages_of_a_shutdown_are_timed() -> None:
    life = Life()
    with life.watchdog.stage("finish requests", 60):
        life.now += 4
        seen = life.scrape()
        assert seen.value(f"{OWN}shutdown_stage_seconds", stage="finish requests") == 4


def test_kv_event_counters_appear_by_rank_with_every_kind() -> None:
    counters = KvEventCounters()
    empty = Scrape(Exposition({"kv": KvEventSource(counters)}).text())
    stream = counters.rank(1)
    stream.batches, stream.skipped = 7, 2
    stream.events[EventKind.STORED] = 30
    stream.malformed[Fault.PAYLOAD] = 1
    seen = Scrape(Exposition({"kv": KvEventSource(counters)}).text())
    assert faults(seen) == own_faults(seen) == []
    assert set(empty.families) == set(seen.families), "described before the first event"
    assert seen.value(f"{OWN}kv_events_batches_total", dp_rank="1") == 7
    assert seen.value(f"{OWN}kv_events_batches_skipped_total", dp_rank="1") == 2
    assert seen.value(f"{OWN}kv_events_seen_total", dp_rank="1", type="stored") == 30
    assert seen.value(f"{OWN}kv_events_malformed_total", dp_rank="1", fault="payload") == 1
