"""Configured routes and server_info on the real SGLang engine, lifecycle and listener."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.route_client import RouteWorker

pytestmark = pytest.mark.engine


# --- the reference document's allowlist ---------------------------------------------------------


def test_every_route_of_the_reference_allowlist_answers(route_worker: RouteWorker) -> None:
    group = {
        "master_address": "127.0.0.1",
        "master_port": 29611,
        "rank_offset": 0,
        "world_size": 1,
        "group_name": "g",
        "backend": "gloo",
    }
    status, info = route_worker.call("/engine/server_info")
    assert status == 200 and info["version"] and "result" not in info
    assert route_worker.call("/engine/pause_generation", {"mode": "in_place"}) == (
        200,
        {"status": "ok"},
    )
    assert route_worker.state() == "paused"
    status, flushed = route_worker.call("/engine/flush_cache")
    assert (status, flushed["success"]) == (200, True)
    status, value = route_worker.call("/engine/init_weights_update_group", group)
    assert (status, value["success"]) == (200, True)
    update = {"names": ["w"], "dtypes": ["float32"], "shapes": [[1]], "group_name": "g"}
    status, value = route_worker.call("/engine/update_weights_from_distributed", update)
    # SGLang 0.5.23 wants a session first; its refusal stays a refusal in the body.
    assert (status, value["success"]) == (200, False)
    assert "begin_weight_update" in value["message"]
    status, value = route_worker.call("/engine/destroy_weights_update_group", {"group_name": "g"})
    assert (status, value["success"]) == (200, True)
    assert route_worker.call("/engine/continue_generation") == (200, {"status": "ok"})
    assert route_worker.serves()


def test_a_backend_that_the_machine_lacks_is_sglangs_own_refusal(route_worker: RouteWorker) -> None:
    body = {
        "master_address": "127.0.0.1",
        "master_port": 29612,
        "rank_offset": 0,
        "world_size": 1,
        "group_name": "n",
        "backend": "nccl",
    }
    status, value = route_worker.call("/engine/init_weights_update_group", body)
    assert (status, value["success"]) == (200, False)
    assert "GPU" in value["message"]


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("init_weights_update_group", {"master_port": "x"}, "keyword master_port"),
        ("init_weights_update_group", {"bogus": 1}, "unknown keyword 'bogus'"),
        ("destroy_weights_update_group", {}, "missing keyword 'group_name'"),
        ("update_weights_from_distributed", {}, "missing field 'names'"),
        (
            "update_weights_from_distributed",
            {"names": ["w"], "dtypes": ["f"], "shapes": [["1"]]},
            "field shapes[0][0]",
        ),
        ("pause_generation", {"mode": "later"}, "field mode"),
        ("pause_generation", {"http_worker_ipc": "ipc://x"}, "unknown field 'http_worker_ipc'"),
        ("continue_generation", {"torch_empty_cache": 1}, "field torch_empty_cache"),
        ("profile", {"bogus": 1}, "unknown keyword 'bogus'"),
        ("abort_request", {"rids": []}, "unknown keyword 'rids'"),
        ("server_info", {"x": 1}, "takes no arguments"),
    ],
)
def test_a_body_that_does_not_fit_the_method_is_400_naming_what(
    route_worker: RouteWorker, path: str, body: dict[str, Any], named: str
) -> None:
    status, value = route_worker.call(f"/engine/{path}", body)
    assert status == 400
    assert named in value["error"]


# --- server_info --------------------------------------------------------------------------------


def test_server_info_is_served_while_64_streams_run(route_worker: RouteWorker) -> None:
    route_worker.call("/engine/test/streams", {"start": 64, "tokens": 24})
    try:
        slowest = 0.0
        reads = 0
        while route_worker.call("/engine/test/streams", {})[1]["running"]:
            with ThreadPoolExecutor(8) as pool:
                began = time.monotonic()
                answers = list(
                    pool.map(lambda _: route_worker.call("/engine/server_info"), range(8))
                )
                slowest = max(slowest, time.monotonic() - began)
            assert {status for status, _ in answers} == {200}
            reads += len(answers)
    finally:
        results = route_worker.call("/engine/test/streams", {"wait": True}, timeout_s=120)[1][
            "results"
        ]
    assert reads and slowest < 20
    assert [result["finish"] for result in results] == ["length"] * 64
    assert all(result["chunks"] > 1 for result in results)


def test_server_info_has_the_configuration_the_states_and_the_runners(
    route_worker: RouteWorker,
) -> None:
    status, info = route_worker.call("/engine/server_info", method="GET")
    assert status == 200
    assert info["model_path"] and info["launch_command"]
    assert len(info["internal_states"]) == 1
    assert info["linear_attn_runners"] == [{"runner": "target"}]


@pytest.mark.parametrize("path", ["server_info", "info", "ops/state"])
def test_no_alias_shows_a_secret(route_worker: RouteWorker, path: str) -> None:
    status, value = route_worker.call(f"/engine/{path}")
    assert status == 200
    text = json.dumps(value)
    assert "api_key" in text
    assert '"api_key": "' not in text.replace('"api_key": "***"', "")
