"""The fixed control routes on the real SGLang engine: failures are answers, never deaths."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.engine.route_client import RouteWorker

pytestmark = pytest.mark.engine


# --- fixed control routes -----------------------------------------------------------------------


def test_pause_and_continue_move_the_worker_out_of_discovery_and_back(
    route_worker: RouteWorker,
) -> None:
    before = route_worker.call("/engine/test/discovery")[1]
    status, body = route_worker.control("pause_generation", {})
    assert (status, body) == (200, {"worker_id": "42", "state": "paused", "reason": None})
    assert route_worker.call("/engine/drain")[0] == 409
    status, body = route_worker.control("continue_generation")
    assert (status, body) == (200, {"worker_id": "42", "state": "serving", "reason": None})
    after = route_worker.call("/engine/test/discovery")[1]
    assert after["withdrawn"] - before["withdrawn"] == 1
    assert after["registered"] - before["registered"] == 1
    assert route_worker.serves()


def test_no_other_route_registers_or_withdraws(route_worker: RouteWorker) -> None:
    before = route_worker.call("/engine/test/discovery")[1]
    for path in ("server_info", "control/flush_cache", "flush_cache", "ops/state", "model"):
        assert route_worker.call(f"/engine/{path}")[0] == 200, path
    route_worker.control("update_weight_version", {"new_version": "2"})
    route_worker.control("update_weights_from_disk", {"model_path": "/nowhere"})
    route_worker.control("stop_profile")
    assert route_worker.call("/engine/test/discovery")[1] == before


def test_a_weight_version_changes_while_a_stream_runs_on(route_worker: RouteWorker) -> None:
    route_worker.call("/engine/test/streams", {"start": 1, "tokens": 64})
    status, body = route_worker.control("update_weight_version", {"new_version": "v7"})
    assert (status, body["new_version"]) == (200, "v7")
    results = route_worker.call("/engine/test/streams", {"wait": True})[1]["results"]
    assert [result["finish"] for result in results] == ["length"]
    assert route_worker.call("/engine/model")[1]["weight_version"] == "v7"


def test_weights_come_from_disk_or_the_engines_reason_does(
    route_worker: RouteWorker, checkpoint: Callable[[str], Path]
) -> None:
    name = "update_weights_from_disk"
    good = {"model_path": str(checkpoint("gdn"))}
    assert route_worker.control(name, good)[0] == 200
    for bad in (
        {"model_path": "/nowhere"},
        {"model_path": str(checkpoint("gdn")), "load_format": "sharded_state"},
        {"model_path": str(checkpoint("gdn")), "load_format": "bogus"},
        {"model_path": str(checkpoint("gdn") / "config.json")},
    ):
        status, value = route_worker.control(name, bad)
        assert (status, bool(value["error"])) == (400, True), bad
    assert route_worker.control(name, good)[0] == 200
    assert route_worker.serves()


def test_tensor_payloads_are_loaded_or_refused_and_never_end_the_scheduler(
    route_worker: RouteWorker, checkpoint: Callable[[str], Path]
) -> None:
    from safetensors import safe_open

    name = "update_weights_from_tensor"
    file = next(checkpoint("gdn").glob("*.safetensors"))
    with safe_open(file, "pt") as tensors:
        norm = tensors.get_tensor("model.norm.weight")

    def payload(value: Any) -> dict[str, Any]:
        return {"serialized_named_tensors": [base64.b64encode(pickle.dumps(value)).decode()]}

    status, value = route_worker.control(name, payload([("model.norm.weight", norm)]))
    assert status == 400 and "begin_weight_update" in value["error"]
    assert route_worker.call("/engine/begin_weight_update")[1]["success"]
    for bad in (
        payload(5),
        payload([("model.norm.weight", norm[:3])]),
        {"serialized_named_tensors": ["aGVsbG8="]},
        {"serialized_named_tensors": []},
        {"serialized_named_tensors": ["%"]},
    ):
        status, value = route_worker.control(name, bad)
        assert (status, bool(value["error"])) == (400, True), bad
    status, value = route_worker.control(name, payload([("model.norm.weight", norm)]))
    assert (status, value["success"]) == (200, True)
    assert route_worker.call("/engine/end_weight_update")[1]["success"]
    assert route_worker.serves()


def test_ipc_weights_without_a_checkpoint_engine_are_refused(route_worker: RouteWorker) -> None:
    status, value = route_worker.control("update_weights_from_ipc", {"zmq_handles": {}})
    assert status == 400 and value["error"]


def test_profiling_writes_a_trace_and_refuses_what_would_end_the_scheduler(
    route_worker: RouteWorker, tmp_path: Path
) -> None:
    assert route_worker.control("stop_profile")[0] == 409
    start = {"output_dir": str(tmp_path), "activities": ["CPU"], "with_stack": False}
    assert route_worker.control("start_profile", start)[0] == 200
    assert route_worker.control("start_profile", start)[0] == 409
    assert route_worker.serves()
    assert route_worker.control("stop_profile")[0] == 200
    assert list(tmp_path.glob("*.trace.json.gz"))
    for bad in (
        {"activities": ["MEM"]},
        {"activities": ["RPD"]},
        {"output_dir": "/proc/nowhere"},
        {"profile_prefix": "a/b"},
        {"num_steps": "1"},
    ):
        assert route_worker.control("start_profile", bad)[0] == 400, bad
    assert route_worker.serves()


def test_the_cache_is_not_flushed_under_running_requests(route_worker: RouteWorker) -> None:
    route_worker.call("/engine/test/streams", {"start": 2, "tokens": 200})
    status, value = route_worker.control("flush_cache")
    assert (status, value["success"]) == (409, False)
    route_worker.call("/engine/test/streams", {"wait": True})
    assert route_worker.control("flush_cache")[0] == 200


# --- memory -------------------------------------------------------------------------------------


def test_memory_is_released_and_resumed_in_any_order(route_worker: RouteWorker) -> None:
    tags = ("weights", "kv_cache", "cuda_graph")
    for order in permutations(tags):
        for tag in order:
            assert route_worker.control("release_memory_occupation", {"tags": [tag]})[0] == 200
        assert route_worker.control("continue_generation")[0] == 409
        assert route_worker.call("/engine/drain")[0] == 409
        for tag in reversed(order):
            assert route_worker.state() == "paused"
            assert route_worker.control("resume_memory_occupation", {"tags": [tag]})[0] == 200
        assert route_worker.state() == "serving"
    assert route_worker.serves()


@pytest.mark.parametrize("body", [None, {}, {"tags": None}, {"tags": []}, {"tags": ["weights"]}])
def test_releasing_or_resuming_twice_changes_nothing(route_worker: RouteWorker, body: Any) -> None:
    assert route_worker.control("resume_memory_occupation", body)[0] == 200
    for _ in range(2):
        assert route_worker.control("release_memory_occupation", body)[0] == 200
        assert route_worker.state() == "paused"
    for _ in range(2):
        assert route_worker.control("resume_memory_occupation", body)[0] == 200
        assert route_worker.state() == "serving"


@pytest.mark.parametrize("tags", [["bogus"], "weights", [1], ["weights", "bogus"], {"a": 1}])
@pytest.mark.parametrize("what", ["release", "resume"])
def test_unknown_tags_are_400(route_worker: RouteWorker, what: str, tags: Any) -> None:
    assert route_worker.control(f"{what}_memory_occupation", {"tags": tags})[0] == 400


def test_released_weights_are_not_written_to(
    route_worker: RouteWorker, checkpoint: Callable[[str], Path]
) -> None:
    update = {"model_path": str(checkpoint("gdn"))}
    route_worker.control("release_memory_occupation", {"tags": ["weights"]})
    status, value = route_worker.control("update_weights_from_disk", update)
    assert status == 409 and "weights are released" in value["error"]
    route_worker.control("resume_memory_occupation", {"tags": ["weights"]})
    assert route_worker.control("update_weights_from_disk", update)[0] == 200


def test_memory_is_not_released_under_running_requests(route_worker: RouteWorker) -> None:
    route_worker.call("/engine/test/streams", {"start": 2, "tokens": 200})
    status, value = route_worker.control("release_memory_occupation")
    assert status == 409 and "2" in value["error"]
    route_worker.call("/engine/test/streams", {"wait": True})


def test_conflicting_calls_at_once_leave_one_consistent_state(route_worker: RouteWorker) -> None:
    calls = [
        "/engine/drain",
        "/engine/resume",
        "/engine/control/pause_generation",
        "/engine/control/continue_generation",
        "/engine/control/release_memory_occupation",
        "/engine/control/resume_memory_occupation",
        "/engine/control/flush_cache",
        "/engine/server_info",
    ] * 3
    with ThreadPoolExecutor(len(calls)) as pool:
        answers = list(pool.map(route_worker.call, calls))
    assert {status for status, _ in answers} <= {200, 202, 409}
    route_worker.control("resume_memory_occupation")
    route_worker.control("continue_generation")
    assert route_worker.call("/engine/resume")[0] == 200
    assert route_worker.serves()
