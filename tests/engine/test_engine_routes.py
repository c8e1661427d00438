"""Every engine route on the real SGLang engine, with the real lifecycle and listener."""

from __future__ import annotations

import base64
import http.client
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine

REFERENCE_ALLOWLIST = (
    "server_info=get_server_info pause_generation:tm flush_cache init_weights_update_group "
    "update_weights_from_distributed:tm destroy_weights_update_group continue_generation:tm"
)
MORE_ROUTES = (
    "begin_weight_update:tm end_weight_update:tm ops/state=get_internal_state:tm "
    "info=get_server_info abort_request:tm profile=start_profile model=get_model_info"
)
START_TIMEOUT_S = 240


class RouteWorker:
    """`tests.engine.route_worker` as a process."""

    def __init__(self, model: Path, log: Path) -> None:
        self._log = log.open("w")
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.engine.route_worker",
                str(model),
                "--skip-tokenizer-init",
            ],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
            env={
                **os.environ,
                "DYN_SYSTEM_PORT": "0",
                "DYN_SYSTEM_HOST": "127.0.0.1",
                "DYN_SGLANG_ENGINE_ROUTES": f"{REFERENCE_ALLOWLIST} {MORE_ROUTES}",
            },
        )
        lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(
            target=lambda: lines.put(self.process.stdout.readline()),  # type: ignore[union-attr]
            daemon=True,
        ).start()
        try:
            described = lines.get(timeout=START_TIMEOUT_S)
            self.port: int = json.loads(described)["port"]
        except (queue.Empty, ValueError):
            self.stop()
            raise AssertionError(f"the worker did not start\n{log.read_text()[-4000:]}") from None

    def call(
        self, path: str, body: Any = None, method: str = "POST", timeout_s: float = 60
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        content = body if body is None or isinstance(body, bytes) else json.dumps(body)
        connection.request(method, path, content)
        answer = connection.getresponse()
        value = json.loads(answer.read())
        connection.close()
        return answer.status, value

    def control(self, name: str, body: Any = None) -> tuple[int, Any]:
        return self.call(f"/engine/control/{name}", body)

    def state(self) -> str:
        return self.call("/engine/status", method="GET")[1]["state"]

    def serves(self) -> bool:
        """A generation runs from end to end."""
        assert self.call("/engine/test/streams", {"start": 1, "tokens": 4})[0] == 200
        results = self.call("/engine/test/streams", {"wait": True})[1]["results"]
        return [result["finish"] for result in results] == ["length"]

    def stop(self) -> None:
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def worker(
    checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RouteWorker]:
    running = RouteWorker(checkpoint("gdn"), tmp_path_factory.mktemp("routes") / "log")
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _every_test_leaves_a_serving_worker(worker: RouteWorker) -> Iterator[None]:
    yield
    assert worker.process.poll() is None
    assert worker.state() == "serving"


# --- the reference document's allowlist ---------------------------------------------------------


def test_every_route_of_the_reference_allowlist_answers(worker: RouteWorker) -> None:
    group = {
        "master_address": "127.0.0.1",
        "master_port": 29611,
        "rank_offset": 0,
        "world_size": 1,
        "group_name": "g",
        "backend": "gloo",
    }
    status, info = worker.call("/engine/server_info")
    assert status == 200 and info["version"] and "result" not in info
    assert worker.call("/engine/pause_generation", {"mode": "in_place"}) == (200, {"status": "ok"})
    assert worker.state() == "paused"
    status, flushed = worker.call("/engine/flush_cache")
    assert (status, flushed["success"]) == (200, True)
    status, value = worker.call("/engine/init_weights_update_group", group)
    assert (status, value["success"]) == (200, True)
    update = {"names": ["w"], "dtypes": ["float32"], "shapes": [[1]], "group_name": "g"}
    status, value = worker.call("/engine/update_weights_from_distributed", update)
    # SGLang 0.5.23 wants a session first; its refusal stays a refusal in the body.
    assert (status, value["success"]) == (200, False)
    assert "begin_weight_update" in value["message"]
    status, value = worker.call("/engine/destroy_weights_update_group", {"group_name": "g"})
    assert (status, value["success"]) == (200, True)
    assert worker.call("/engine/continue_generation") == (200, {"status": "ok"})
    assert worker.serves()


def test_a_backend_that_the_machine_lacks_is_sglangs_own_refusal(worker: RouteWorker) -> None:
    body = {
        "master_address": "127.0.0.1",
        "master_port": 29612,
        "rank_offset": 0,
        "world_size": 1,
        "group_name": "n",
        "backend": "nccl",
    }
    status, value = worker.call("/engine/init_weights_update_group", body)
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
    worker: RouteWorker, path: str, body: dict[str, Any], named: str
) -> None:
    status, value = worker.call(f"/engine/{path}", body)
    assert status == 400
    assert named in value["error"]


# --- server_info --------------------------------------------------------------------------------


def test_server_info_is_served_while_64_streams_run(worker: RouteWorker) -> None:
    worker.call("/engine/test/streams", {"start": 64, "tokens": 24})
    try:
        slowest = 0.0
        reads = 0
        while worker.call("/engine/test/streams", {})[1]["running"]:
            with ThreadPoolExecutor(8) as pool:
                began = time.monotonic()
                answers = list(pool.map(lambda _: worker.call("/engine/server_info"), range(8)))
                slowest = max(slowest, time.monotonic() - began)
            assert {status for status, _ in answers} == {200}
            reads += len(answers)
    finally:
        results = worker.call("/engine/test/streams", {"wait": True}, timeout_s=120)[1]["results"]
    assert reads and slowest < 20
    assert [result["finish"] for result in results] == ["length"] * 64
    assert all(result["chunks"] > 1 for result in results)


def test_server_info_has_the_configuration_the_states_and_the_runners(worker: RouteWorker) -> None:
    status, info = worker.call("/engine/server_info", method="GET")
    assert status == 200
    assert info["model_path"] and info["launch_command"]
    assert len(info["internal_states"]) == 1
    assert info["linear_attn_runners"] == [{"runner": "target"}]


@pytest.mark.parametrize("path", ["server_info", "info", "ops/state"])
def test_no_alias_shows_a_secret(worker: RouteWorker, path: str) -> None:
    status, value = worker.call(f"/engine/{path}")
    assert status == 200
    text = json.dumps(value)
    assert "api_key" in text
    assert '"api_key": "' not in text.replace('"api_key": "***"', "")


# --- fixed control routes -----------------------------------------------------------------------


def test_pause_and_continue_move_the_worker_out_of_discovery_and_back(worker: RouteWorker) -> None:
    before = worker.call("/engine/test/discovery")[1]
    status, body = worker.control("pause_generation", {})
    assert (status, body) == (200, {"worker_id": "42", "state": "paused", "reason": None})
    assert worker.call("/engine/drain")[0] == 409
    status, body = worker.control("continue_generation")
    assert (status, body) == (200, {"worker_id": "42", "state": "serving", "reason": None})
    after = worker.call("/engine/test/discovery")[1]
    assert after["withdrawn"] - before["withdrawn"] == 1
    assert after["registered"] - before["registered"] == 1
    assert worker.serves()


def test_no_other_route_registers_or_withdraws(worker: RouteWorker) -> None:
    before = worker.call("/engine/test/discovery")[1]
    for path in ("server_info", "control/flush_cache", "flush_cache", "ops/state", "model"):
        assert worker.call(f"/engine/{path}")[0] == 200, path
    worker.control("update_weight_version", {"new_version": "2"})
    worker.control("update_weights_from_disk", {"model_path": "/nowhere"})
    worker.control("stop_profile")
    assert worker.call("/engine/test/discovery")[1] == before


def test_a_weight_version_changes_while_a_stream_runs_on(worker: RouteWorker) -> None:
    worker.call("/engine/test/streams", {"start": 1, "tokens": 64})
    status, body = worker.control("update_weight_version", {"new_version": "v7"})
    assert (status, body["new_version"]) == (200, "v7")
    results = worker.call("/engine/test/streams", {"wait": True})[1]["results"]
    assert [result["finish"] for result in results] == ["length"]
    assert worker.call("/engine/model")[1]["weight_version"] == "v7"


def test_weights_come_from_disk_or_the_engines_reason_does(
    worker: RouteWorker, checkpoint: Callable[[str], Path]
) -> None:
    name = "update_weights_from_disk"
    good = {"model_path": str(checkpoint("gdn"))}
    assert worker.control(name, good)[0] == 200
    for bad in (
        {"model_path": "/nowhere"},
        {"model_path": str(checkpoint("gdn")), "load_format": "sharded_state"},
        {"model_path": str(checkpoint("gdn")), "load_format": "bogus"},
        {"model_path": str(checkpoint("gdn") / "config.json")},
    ):
        status, value = worker.control(name, bad)
        assert (status, bool(value["error"])) == (400, True), bad
    assert worker.control(name, good)[0] == 200
    assert worker.serves()


def test_tensor_payloads_are_loaded_or_refused_and_never_end_the_scheduler(
    worker: RouteWorker, checkpoint: Callable[[str], Path]
) -> None:
    from safetensors import safe_open

    name = "update_weights_from_tensor"
    file = next(checkpoint("gdn").glob("*.safetensors"))
    with safe_open(file, "pt") as tensors:
        norm = tensors.get_tensor("model.norm.weight")

    def payload(value: Any) -> dict[str, Any]:
        return {"serialized_named_tensors": [base64.b64encode(pickle.dumps(value)).decode()]}

    status, value = worker.control(name, payload([("model.norm.weight", norm)]))
    assert status == 400 and "begin_weight_update" in value["error"]
    assert worker.call("/engine/begin_weight_update")[1]["success"]
    for bad in (
        payload(5),
        payload([("model.norm.weight", norm[:3])]),
        {"serialized_named_tensors": ["aGVsbG8="]},
        {"serialized_named_tensors": []},
        {"serialized_named_tensors": ["%"]},
    ):
        status, value = worker.control(name, bad)
        assert (status, bool(value["error"])) == (400, True), bad
    status, value = worker.control(name, payload([("model.norm.weight", norm)]))
    assert (status, value["success"]) == (200, True)
    assert worker.call("/engine/end_weight_update")[1]["success"]
    assert worker.serves()


def test_ipc_weights_without_a_checkpoint_engine_are_refused(worker: RouteWorker) -> None:
    status, value = worker.control("update_weights_from_ipc", {"zmq_handles": {}})
    assert status == 400 and value["error"]


def test_profiling_writes_a_trace_and_refuses_what_would_end_the_scheduler(
    worker: RouteWorker, tmp_path: Path
) -> None:
    assert worker.control("stop_profile")[0] == 409
    start = {"output_dir": str(tmp_path), "activities": ["CPU"], "with_stack": False}
    assert worker.control("start_profile", start)[0] == 200
    assert worker.control("start_profile", start)[0] == 409
    assert worker.serves()
    assert worker.control("stop_profile")[0] == 200
    assert list(tmp_path.glob("*.trace.json.gz"))
    for bad in (
        {"activities": ["MEM"]},
        {"activities": ["RPD"]},
        {"output_dir": "/proc/nowhere"},
        {"profile_prefix": "a/b"},
        {"num_steps": "1"},
    ):
        assert worker.control("start_profile", bad)[0] == 400, bad
    assert worker.serves()


def test_the_cache_is_not_flushed_under_running_requests(worker: RouteWorker) -> None:
    worker.call("/engine/test/streams", {"start": 2, "tokens": 200})
    status, value = worker.control("flush_cache")
    assert (status, value["success"]) == (409, False)
    worker.call("/engine/test/streams", {"wait": True})
    assert worker.control("flush_cache")[0] == 200


# --- memory -------------------------------------------------------------------------------------


def test_memory_is_released_and_resumed_in_any_order(worker: RouteWorker) -> None:
    tags = ("weights", "kv_cache", "cuda_graph")
    for order in permutations(tags):
        for tag in order:
            assert worker.control("release_memory_occupation", {"tags": [tag]})[0] == 200
        assert worker.control("continue_generation")[0] == 409
        assert worker.call("/engine/drain")[0] == 409
        for tag in reversed(order):
            assert worker.state() == "paused"
            assert worker.control("resume_memory_occupation", {"tags": [tag]})[0] == 200
        assert worker.state() == "serving"
    assert worker.serves()


@pytest.mark.parametrize("body", [None, {}, {"tags": None}, {"tags": []}, {"tags": ["weights"]}])
def test_releasing_or_resuming_twice_changes_nothing(worker: RouteWorker, body: Any) -> None:
    assert worker.control("resume_memory_occupation", body)[0] == 200
    for _ in range(2):
        assert worker.control("release_memory_occupation", body)[0] == 200
        assert worker.state() == "paused"
    for _ in range(2):
        assert worker.control("resume_memory_occupation", body)[0] == 200
        assert worker.state() == "serving"


@pytest.mark.parametrize("tags", [["bogus"], "weights", [1], ["weights", "bogus"], {"a": 1}])
@pytest.mark.parametrize("what", ["release", "resume"])
def test_unknown_tags_are_400(worker: RouteWorker, what: str, tags: Any) -> None:
    assert worker.control(f"{what}_memory_occupation", {"tags": tags})[0] == 400


def test_released_weights_are_not_written_to(
    worker: RouteWorker, checkpoint: Callable[[str], Path]
) -> None:
    update = {"model_path": str(checkpoint("gdn"))}
    worker.control("release_memory_occupation", {"tags": ["weights"]})
    status, value = worker.control("update_weights_from_disk", update)
    assert status == 409 and "weights are released" in value["error"]
    worker.control("resume_memory_occupation", {"tags": ["weights"]})
    assert worker.control("update_weights_from_disk", update)[0] == 200


def test_memory_is_not_released_under_running_requests(worker: RouteWorker) -> None:
    worker.call("/engine/test/streams", {"start": 2, "tokens": 200})
    status, value = worker.control("release_memory_occupation")
    assert status == 409 and "2" in value["error"]
    worker.call("/engine/test/streams", {"wait": True})


def test_conflicting_calls_at_once_leave_one_consistent_state(worker: RouteWorker) -> None:
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
        answers = list(pool.map(worker.call, calls))
    assert {status for status, _ in answers} <= {200, 202, 409}
    worker.control("resume_memory_occupation")
    worker.control("continue_generation")
    assert worker.call("/engine/resume")[0] == 200
    assert worker.serves()
