"""SGLang's multiprocess files: merged over processes, labelled, and read no oftener than needed."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest
from sglang_worker.observability.metrics.exposition import Exposition
from sglang_worker.observability.metrics.sglang_series import FRESH_FOR_S, SglangSeries

from tests.support.exposition import Scrape, faults

# As SGLang's processes do: a counter that all add to, a gauge of the latest, a histogram.
WRITER = """
import sys
from prometheus_client import Counter, Gauge, Histogram
amount = float(sys.argv[1])
Counter("sglang:done_total", "Done.", ["model_name"]).labels("m").inc(amount)
Gauge("sglang:running", "Running.", multiprocess_mode="mostrecent").set(amount)
Histogram("sglang:took_seconds", "Took.", buckets=(1, 2)).observe(amount)
Counter("other_total", "Of some other program.").inc()
"""
LABELS = {"dynamo_component": "backend", "model_name": "never seen: SGLang has its own"}


def write(folder: Path, amount: float) -> None:
    subprocess.run(
        [sys.executable, "-c", WRITER, str(amount)],
        env={"PROMETHEUS_MULTIPROC_DIR": str(folder), "PATH": ""},
        check=True,
        timeout=60,
    )


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    for amount in (1.5, 0.5):
        write(folder, amount)
    return folder


def test_values_of_all_processes_become_one_series_with_dynamos_labels(written: Path) -> None:
    seen = Scrape(Exposition({}, SglangSeries(written, LABELS)).text())
    assert faults(seen) == []
    assert seen.value("sglang:done_total", model_name="m", dynamo_component="backend") == 2
    assert seen.value("sglang:running", dynamo_component="backend") == 0.5
    assert seen.values("sglang:took_seconds_bucket") == [1, 2, 2]
    assert "other_total" not in seen.families
    assert seen.value("dynamo_sglang_multiprocess_files") == 6
    assert seen.value("dynamo_sglang_multiprocess_bytes") == 6 * 65536


def test_files_are_merged_again_only_when_the_last_merge_is_old(tmp_path: Path) -> None:
    clock = Clock()
    series = SglangSeries(tmp_path, {}, clock)

    def done() -> float:
        return Scrape(series.text()).value("sglang:done_total")

    write(tmp_path, 1)
    assert done() == 1
    write(tmp_path, 1)
    clock.now += FRESH_FOR_S / 2
    assert done() == 1
    clock.now += FRESH_FOR_S
    assert done() == 2


def test_a_broken_file_costs_sglangs_part_alone(tmp_path: Path) -> None:
    # 64 bytes in use, of which the first key claims 5,000.
    (tmp_path / "counter_1.db").write_bytes(struct.pack("iiI", 64, 0, 5000) + bytes(4096))
    seen = Scrape(Exposition({}, SglangSeries(tmp_path, {})).text())
    assert seen.value("dynamo_sglang_scrape_errors_total", part="sglang") == 1


def test_a_folder_that_vanished_as_at_exit_is_no_series_and_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    series = SglangSeries(folder, {})
    folder.rmdir()
    seen = Scrape(Exposition({}, series).text())
    assert seen.value("dynamo_sglang_scrape_errors_total", part="sglang") == 0
