"""When forward-pass metrics are on, and under which instance they are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    WorkerConfig,
    WorkerType,
)
from sglang_worker.engine import compat_stream_hooks
from sglang_worker.observability import forward_passes


def config(
    worker_type: WorkerType = WorkerType.AGGREGATED, *, trace: bool = False, **explicit: Any
) -> WorkerConfig:
    return WorkerConfig(
        worker_type=worker_type,
        endpoint=EndpointAddress("dynamo", "backend", "generate"),
        engine=EngineFlags(explicit=explicit),
        dynamo={"fpm_trace": trace},
    )


def test_they_are_off_by_default() -> None:
    assert forward_passes.engine_flags(config(), {}) == {}
    assert forward_passes.engine_flags(config(), {forward_passes.PORT_VARIABLE: ""}) == {}


@pytest.mark.parametrize(
    ("asked", "environ"),
    [
        (config(trace=True), {}),
        (config(enable_forward_pass_metrics=True), {}),
        (config(), {forward_passes.PORT_VARIABLE: "20380"}),
    ],
)
def test_each_switch_turns_them_on(asked: WorkerConfig, environ: dict[str, str]) -> None:
    flags = forward_passes.engine_flags(asked, environ)
    assert flags[forward_passes.FLAG] is True
    assert flags["forward_pass_metrics_ipc_name"].startswith("ipc://@")
    again = forward_passes.engine_flags(asked, environ)
    assert again["forward_pass_metrics_ipc_name"] != flags["forward_pass_metrics_ipc_name"]


def test_the_address_of_the_operator_is_kept() -> None:
    flags = forward_passes.engine_flags(
        config(trace=True, forward_pass_metrics_ipc_name="ipc:///run/passes"), {}
    )
    assert flags["forward_pass_metrics_ipc_name"] == "ipc:///run/passes"


def test_a_type_without_passes_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert forward_passes.engine_flags(config(WorkerType.EMBEDDING, trace=True), {}) == {}
    assert "embedding workers have none" in caplog.text


class Metrics(msgspec.Struct, frozen=True):
    worker_id: str = ""
    counter_id: int = 0


def test_the_instance_is_put_in_as_soon_as_it_is_known(tmp_path: Path) -> None:
    path = tmp_path / compat_stream_hooks.INSTANCE_FILE
    encode = compat_stream_hooks.stamped(msgspec.json.encode, path)

    def sent() -> str:
        return str(msgspec.json.decode(encode(Metrics(counter_id=5)))["worker_id"])

    assert sent() == ""
    path.write_text("123456789012345678")
    assert sent() == "123456789012345678"
    path.unlink()
    assert sent() == "123456789012345678"


def test_a_release_without_the_modules_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat_stream_hooks, "PASSES", "sglang_worker.no_such_folder.passes")
    monkeypatch.setattr(compat_stream_hooks, "KV_METRICS", "sglang_worker.no_such_module")
    compat_stream_hooks.install("/nowhere")
