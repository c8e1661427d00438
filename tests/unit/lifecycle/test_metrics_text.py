from __future__ import annotations

import pytest
from sglang_worker.lifecycle.metrics_text import GaugesMissing, busy

IDLE = """
# HELP dynamo_component_inflight_requests Number of requests currently being processed
# TYPE dynamo_component_inflight_requests gauge
dynamo_component_inflight_requests{dynamo_endpoint="generate",model="m, {x} \\"q\\""} 0
dynamo_component_inflight_requests{dynamo_component="backend",dynamo_endpoint="clear_kv_blocks"} 0
dynamo_component_inflight_requests_total_made_up{dynamo_endpoint="generate"} 7
dynamo_component_requests_total{dynamo_endpoint="generate"} 41
dynamo_work_handler_pool_active_tasks 0
dynamo_work_handler_queue_depth 0
sglang:num_running_reqs{model_name="m"} 3.0
"""


def test_an_idle_worker_has_nothing_in_flight() -> None:
    assert busy(IDLE) == 0


@pytest.mark.parametrize(
    "line",
    [
        'dynamo_component_inflight_requests{dynamo_endpoint="generate"} 2',
        'dynamo_component_inflight_requests{dynamo_endpoint="clear_kv_blocks"} 1',
        "dynamo_work_handler_pool_active_tasks 1",
        "dynamo_work_handler_queue_depth 4 1700000000",
    ],
)
def test_each_watched_gauge_counts(line: str) -> None:
    assert busy(IDLE + line + "\n") > 0


@pytest.mark.parametrize("character", "\x0b\x0c\x1c\x85\u2028\r")
def test_a_label_may_hold_what_looks_like_the_end_of_a_line(character: str) -> None:
    gauge = f'dynamo_component_inflight_requests{{model="a{character}b",dynamo_endpoint="g"}}'
    assert busy(f"{gauge} 2\n") == 2


def test_the_kv_publishers_own_endpoint_is_left_out() -> None:
    line = 'dynamo_component_inflight_requests{dynamo_endpoint="worker_kv_query_source_0"} 1\n'
    assert busy(IDLE + line) == 0


def test_text_without_the_gauge_is_no_proof_of_anything() -> None:
    with pytest.raises(GaugesMissing):
        busy("# nothing here\n")
