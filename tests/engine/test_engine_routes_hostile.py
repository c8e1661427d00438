"""Bodies that nobody would send on purpose: each is answered, and the worker serves on.

50 bodies per route by default; the long profile sends 500.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.route_client import RouteWorker

pytestmark = pytest.mark.engine

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
FIELDS = {
    "control/start_profile": ("output_dir", "num_steps", "activities", "profile_by_stage"),
    "control/release_memory_occupation": ("tags",),
    "control/resume_memory_occupation": ("tags",),
    "control/pause_generation": ("mode",),
    "control/continue_generation": ("torch_empty_cache",),
    "control/update_weights_from_disk": ("model_path", "load_format", "manifest", "token_step"),
    "control/update_weights_from_tensor": ("serialized_named_tensors", "load_format", "selector"),
    "control/update_weights_from_distributed": ("names", "dtypes", "shapes", "group_name"),
    "control/update_weights_from_ipc": ("zmq_handles", "flush_cache"),
    "control/update_weight_version": ("new_version", "abort_all_requests"),
    "control/flush_cache": ("timeout_s",),
    "control/stop_profile": ("x",),
    "drain": ("x",),
    "server_info": ("x",),
    # Configured: typed by the tokenizer manager, and keywords of the engine.
    "update_weights_from_distributed": ("names", "dtypes", "shapes", "weight_version"),
    "destroy_weights_update_group": ("group_name",),
    "profile": ("num_steps", "profile_id", "merge_profiles"),
    "abort_request": ("rid", "abort_all"),
}
# Valid bodies make SGLang wait for peers: only bodies that lack something are sent there.
INCOMPLETE_ONLY = {"init_weights_update_group": ("master_address", "master_port", "rank_offset")}
ANSWERS = {200, 202, 400, 409, 413, 500, 503}


def bodies(names: tuple[str, ...]) -> st.SearchStrategy[bytes]:
    """Objects with the route's own fields, any JSON, and any bytes."""
    fields = st.dictionaries(st.sampled_from(names) | st.text(max_size=6), JSON, max_size=5)
    return (
        fields.map(lambda one: json.dumps(one).encode())
        | JSON.map(lambda one: json.dumps(one).encode())
        | st.binary(max_size=60)
    )


def assault(worker: RouteWorker, path: str, names: tuple[str, ...], examples: int) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(bodies(names))
    def send(body: bytes) -> None:
        status, value = worker.call(f"/engine/{path}", body, timeout_s=30)
        assert status in ANSWERS, (status, value)
        assert isinstance(value, dict)
        if status >= 400:
            assert value.get("error")

    send()
    worker.settle()
    assert worker.serves()


@pytest.mark.parametrize("path", [*FIELDS, *INCOMPLETE_ONLY])
def test_generated_bodies_are_answered_and_the_worker_serves_on(
    route_worker: RouteWorker, path: str
) -> None:
    assault(route_worker, path, {**FIELDS, **INCOMPLETE_ONLY}[path], 50)


@pytest.mark.long
@pytest.mark.parametrize("path", [*FIELDS, *INCOMPLETE_ONLY])
def test_five_hundred_generated_bodies_are_answered(route_worker: RouteWorker, path: str) -> None:
    assault(route_worker, path, {**FIELDS, **INCOMPLETE_ONLY}[path], 500)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\xff\xfe", 400),
        (b'{"tags": "\xc3\x28"}', 400),
        (b'{"a":' * 5000, 400),
        (b"[" * 100_000, 400),
        (b'{"tags": NaN}', 400),
        (b'{"tags": ' + b"9" * 10_000 + b"}", 400),
        (b"null", 400),
        (b"{}" + b" " * (1 << 20), 413),
    ],
)
def test_raw_bodies_that_are_no_object(route_worker: RouteWorker, body: bytes, status: int) -> None:
    for path in ("control/release_memory_occupation", "pause_generation", "drain", "flush_cache"):
        answered, value = route_worker.call(f"/engine/{path}", body)
        assert (answered, bool(value["error"])) == (status, True), path


def schemathesis(worker: RouteWorker, folder: Path, examples: int) -> None:
    """The published document against the running worker."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"http://127.0.0.1:{worker.port}/engine/openapi.json",
        "--phases=examples,coverage,fuzzing",
        f"--max-examples={examples}",
        "--checks=not_a_server_error,content_type_conformance,response_schema_conformance,"
        "status_code_conformance",
        "--exclude-path-regex=init_weights_update_group|profile|^/(health|ready|startup|metrics|metadata)$",
        "--seed=7",
        "--request-timeout=30",
        "--suppress-health-check=all",
        "--no-color",
    ]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=560, check=False
    )
    worker.settle()
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


def test_schemathesis_finds_no_fault_in_the_published_document(
    route_worker: RouteWorker, tmp_path: Path
) -> None:
    schemathesis(route_worker, tmp_path, 3)
    assert route_worker.serves()


@pytest.mark.long
def test_schemathesis_finds_no_fault_with_many_examples(
    route_worker: RouteWorker, tmp_path: Path
) -> None:
    schemathesis(route_worker, tmp_path, 50)
    assert route_worker.serves()
