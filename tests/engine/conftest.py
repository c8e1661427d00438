"""Real engines for tests, shared: ``engine_for("qwen3_next", chunked_prefill_size=128)``."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from sglang_worker.reference_platform.defaults import process_environment

from tests.engine.engine_host import EngineHost
from tests.engine.fork_server import fork_server as fork_server
from tests.engine.route_client import RouteWorker
from tests.engine.runners_fixture import runner_lab as runner_lab
from tests.engine.transformers_host import TransformersHost

LIVE_ENGINES = 2


class EngineFactory(Protocol):
    def __call__(self, model: str | Path, **server_args: Any) -> EngineHost: ...


@pytest.fixture(scope="session")
def transformers_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TransformersHost]:
    """Hugging Face transformers in a process that never loads SGLang."""
    os.environ.update(process_environment())
    host = TransformersHost(tmp_path_factory.mktemp("transformers") / "log")
    yield host
    host.close()


@pytest.fixture(scope="session")
def numerics_model(
    transformers_host: TransformersHost, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """``numerics_model("qwen3_next")``: folder of a small random model (tests.engine.models)."""
    root = tmp_path_factory.mktemp("models")

    def folder_of(name: str) -> Path:
        folder = root / name
        if not folder.exists():
            transformers_host.write_model(name, folder)
        return folder

    return folder_of


@pytest.fixture(scope="session")
def engine_for(
    fork_server: None,
    numerics_model: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[EngineFactory]:
    """Starts an engine, or returns the live one of that configuration.

    ``model`` is a name of tests.engine.models or a folder. At most two engines live at a time;
    the one that was not asked for longest ends first, so keep no engine across tests.
    """
    os.environ.update(process_environment())
    live: OrderedDict[str, EngineHost] = OrderedDict()
    logs = tmp_path_factory.mktemp("engines")

    def get(model: str | Path, **server_args: Any) -> EngineHost:
        folder = model if isinstance(model, Path) else numerics_model(model)
        arguments = {
            "model_path": str(folder),
            "skip_tokenizer_init": True,
            "context_length": 2048,
            "log_level": "warning",
            **server_args,
        }
        key = json.dumps(arguments, sort_keys=True)
        if key not in live:
            while len(live) >= LIVE_ENGINES:
                live.popitem(last=False)[1].close()
            live[key] = EngineHost(arguments, logs / f"{len(list(logs.iterdir()))}.log")
        live.move_to_end(key)
        return live[key]

    yield get
    for engine in live.values():
        engine.close()


@pytest.fixture(scope="session")
def _shared_route_worker(
    checkpoint: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RouteWorker]:
    running = RouteWorker(checkpoint("gdn"), tmp_path_factory.mktemp("routes"))
    yield running
    running.stop()


@pytest.fixture
def route_worker(_shared_route_worker: RouteWorker) -> Iterator[RouteWorker]:
    """A worker with engine routes, shared by all tests of them; each must leave it serving."""
    yield _shared_route_worker
    assert _shared_route_worker.process.poll() is None
    assert _shared_route_worker.state() == "serving"
