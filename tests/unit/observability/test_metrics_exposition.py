"""From the objects to the text, and the linter that judges the text."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from sglang_worker.observability.attach import attach
from sglang_worker.observability.metrics import definitions as d
from sglang_worker.observability.metrics.definitions import Definition, Kind, Reading
from sglang_worker.observability.metrics.exposition import Exposition
from sglang_worker.observability.metrics.families import LabelTexts, family, render, typed
from sglang_worker.observability.metrics.gc_pauses import GC_PAUSES, GcPauses
from sglang_worker.observability.metrics.histogram import Histogram
from sglang_worker.observability.metrics.sources import CacheLoad, CacheSource, RouteSource

from tests.support.exposition import Scrape, faults, own_faults


class Fixed:
    def __init__(self, *readings: Reading, error: Exception | None = None) -> None:
        self.readings = readings
        self.error = error

    def read(self) -> Iterable[Reading]:
        yield from self.readings
        if self.error is not None:
            raise self.error


def scrape(**sources: Any) -> Scrape:
    return Scrape(Exposition(sources).text())


def all_definitions() -> list[Definition]:
    return [value for value in vars(d).values() if isinstance(value, Definition)]


def test_every_kind_is_rendered_with_help_and_type() -> None:
    pauses = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        pauses.observe(value)
    seen = scrape(
        all=Fixed(
            (d.ADMITTED, {(): 3}),
            (d.STATE, {("serving",): 1, ("paused",): 0}),
            (d.GC_PAUSE, {("0",): pauses}),
            (d.DRAIN_DURATION, {(): (2, 7.5)}),
            (d.UNSENT, {}),
        )
    )
    assert faults(seen) == own_faults(seen) == []
    assert seen.value("dynamo_sglang_requests_admitted_total") == 3
    assert seen.values("dynamo_sglang_gc_pause_seconds_bucket", generation="0") == [2, 3, 4]
    assert seen.value("dynamo_sglang_gc_pause_seconds_sum", generation="0") == pytest.approx(7.65)
    assert seen.value("dynamo_sglang_drain_duration_seconds_count") == 2
    assert seen.families["dynamo_sglang_unsent_response_bytes"].samples == []


def test_names_are_unique_and_follow_the_conventions_before_anything_is_served() -> None:
    found = all_definitions()
    assert len({one.name for one in found}) == len(found) > 30
    # The exposition always adds its own.
    others = [one for one in found if one not in (d.SCRAPE_ERRORS, d.SCRAPE_SECONDS)]
    empty = scrape(all=Fixed(*((one, {}) for one in others)))
    assert own_faults(empty) == faults(empty) == []
    assert {one.name for one in found} <= set(empty.families)


def test_a_part_that_fails_is_counted_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = Fixed((d.ADMITTED, {(): 1}))
    bad = Fixed((d.CANCELLED, {(): 1}), error=RuntimeError("gone"))
    exposition = Exposition({"bad": bad, "good": good})
    for expected in (1, 2):
        seen = Scrape(exposition.text())
        assert seen.value("dynamo_sglang_requests_admitted_total") == 1
        assert "dynamo_sglang_requests_cancelled_total" not in seen.families
        assert seen.value("dynamo_sglang_scrape_errors_total", part="bad") == expected
        assert seen.value("dynamo_sglang_scrape_errors_total", part="good") == 0
    assert caplog.text.count("bad could not be read") == 1


def test_label_values_are_escaped() -> None:
    nasty = 'a"b\\c\nd'
    seen = scrape(routes=RouteSource(lambda: {(nasty, 200): 1}))
    assert seen.values("dynamo_sglang_engine_route_calls_total", code="200") == [1]
    assert faults(seen) == []


def test_the_text_is_the_one_that_prometheus_client_writes() -> None:
    pauses = Histogram((0.1, 1.0))
    pauses.observe(0.5)
    metrics = [
        family(d.ADMITTED, {(): 3}),
        family(d.DRAIN_ELAPSED, {(): 1e-7}),
        family(d.GC_PAUSE, {("0",): pauses}),
        family(d.DRAIN_DURATION, {(): (2, 7.5)}),
        family(
            Definition("odd_info", Kind.GAUGE, 'A "quoted" \\ and\ntwo lines.', ("b", "a")),
            {('x"y\\z\nw', ""): float("inf"), ("é", "1"): float("nan")},
        ),
    ]
    registry = CollectorRegistry()
    registry.collect = lambda: metrics
    assert render(metrics, LabelTexts()) == generate_latest(registry).decode()


def test_an_unknown_load_is_absent_rather_than_zero() -> None:
    loads = {0: CacheLoad(used_blocks=5, hit_ratio=None), 1: CacheLoad()}
    seen = scrape(
        cache=CacheSource(
            ranks=range(3), blocks=10, loads=lambda: loads, names=("m", "backend"), model_load_s=2.0
        )
    )
    assert seen.values("dynamo_sglang_kv_blocks") == [10, 10, 10]
    assert seen.values("dynamo_sglang_kv_blocks_used") == [5]
    assert seen.values("dynamo_sglang_kv_cache_hit_ratio") == []
    assert seen.value("dynamo_component_gpu_cache_usage_percent", dp_rank="0", model="m") == 0.5


def test_the_otlp_form_carries_the_same_samples() -> None:
    metric = family(Definition("x_total", Kind.COUNTER, "X.", ("a",)), {("b",): 4})
    name, help, kind, unit, samples = typed(metric)
    assert (name, help, kind, unit) == ("x", "X.", "counter", "")
    assert samples == [("x_total", [("a", "b")], 4.0, None)]


def test_a_pause_is_observed_for_its_generation() -> None:
    now = [1.0]
    pauses = GcPauses(lambda: now[0])
    pauses.note("start", {"generation": 2})
    now[0] = 1.03
    pauses.note("stop", {"generation": 2})
    # A collection that began before it was installed has no start.
    pauses.note("stop", {"generation": 0})
    seen = scrape(gc=pauses)
    assert seen.value("dynamo_sglang_gc_pause_seconds_count", generation="2") == 1
    assert seen.value("dynamo_sglang_gc_pause_seconds_bucket", generation="2", le="0.02") == 0
    assert seen.value("dynamo_sglang_gc_pause_seconds_bucket", generation="2", le="0.05") == 1
    assert seen.value("dynamo_sglang_gc_pause_seconds_count", generation="0") == 0
    assert pauses.longest_s == pytest.approx(0.03)


class Endpoint:
    """As Dynamo's, which calls from a thread of its own."""

    def __init__(self) -> None:
        self.metrics = self
        self.callbacks: list[Any] = []

    def register_prometheus_expfmt_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    register_prometheus_typed_callback = register_prometheus_expfmt_callback


def test_attached_metrics_answer_from_another_thread_with_the_collectors_pauses() -> None:
    endpoint = Endpoint()
    GC_PAUSES.install()
    try:
        attach(endpoint, {"one": Fixed((d.ADMITTED, {(): 1}))})
        gc.collect()
        found: list[Any] = []
        asking = threading.Thread(target=lambda: found.extend(one() for one in endpoint.callbacks))
        asking.start()
        asking.join(10)
    finally:
        GC_PAUSES.remove()
    text, structures = found
    seen = Scrape(text)
    assert seen.value("dynamo_sglang_gc_pause_seconds_count", generation="2") >= 1
    assert seen.value("dynamo_sglang_gc_longest_pause_seconds") > 0
    assert {one[0] for one in structures} >= {"dynamo_sglang_requests_admitted"}


# --- the linter itself ----------------------------------------------------------------------------

HEAD = "# HELP {0} A sentence.\n# TYPE {0} {1}\n"
HISTOGRAM = HEAD.format("a", "histogram")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (HEAD.format("a", "gauge") + "a 1\na 2\n", "2 times"),
        (HEAD.format("a", "gauge") * 2, "2 times"),
        ("# TYPE a gauge\na 1\n", "lacks help"),
        (HEAD.format("a", "gauge") + "b 1\n", "outside its family"),
        (
            HEAD.format("a", "histogram") + 'a_bucket{le="1"} 2\na_bucket{le="+Inf"} 1\n',
            "cumulative",
        ),
        (
            HEAD.format("a", "histogram") + 'a_bucket{le="+Inf"} 1\na_sum 1\na_count 2\n',
            "last bucket",
        ),
    ],
)
def test_the_linter_finds_what_no_exposition_may_have(text: str, word: str) -> None:
    assert any(word in fault for fault in faults(Scrape(text)))


@pytest.mark.parametrize(
    ("name", "kind", "samples"),
    [
        ("requests", "counter", ""),
        ("in_flight_total", "gauge", ""),
        ("delay_ms", "gauge", ""),
        ("cache_percent", "gauge", ""),
        ("Requests", "gauge", ""),
        ("build_info", "gauge", "dynamo_sglang_build_info 2\n"),
        ("wide", "gauge", "".join(f'dynamo_sglang_wide{{id="{n}"}} 1\n' for n in range(200))),
    ],
)
def test_the_linter_finds_what_our_own_metrics_may_not_have(
    name: str, kind: str, samples: str
) -> None:
    text = HEAD.format(f"dynamo_sglang_{name}", kind) + samples
    assert len(own_faults(Scrape(text))) == 1


def test_a_line_that_is_no_sample_is_an_error() -> None:
    for line in ("value", "a{b=c} 1", "a 1 2 3 x"):
        with pytest.raises(ValueError, match=r"sample|labels"):
            Scrape(HEAD.format("a", "gauge") + line)


def test_own_metrics_leave_nothing_in_sglangs_folder(tmp_path: Path) -> None:
    """Gauge and Counter objects would write files there, and be served twice."""
    import os
    import subprocess
    import sys

    program = (
        "from sglang_worker.observability.metrics import definitions as d\n"
        "from sglang_worker.observability.metrics.exposition import Exposition\n"
        "class One:\n"
        "    def read(self):\n"
        "        yield d.ADMITTED, {(): 1}\n"
        "print(Exposition({'one': One()}).text().count('requests_admitted_total 1'))\n"
    )
    environ = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "1", run.stderr
    assert list(tmp_path.iterdir()) == []


def test_labels_are_added_where_missing_and_looked_up_the_second_time() -> None:
    texts = LabelTexts({"model": "ours", "rank": "0"})
    labels = {"rank": "7", "le": "1.0"}
    assert texts.of(labels) == '{le="1.0",model="ours",rank="7"}'
    assert texts.of(dict(labels)) is texts.of(labels)
    assert LabelTexts().of({}) == ""
