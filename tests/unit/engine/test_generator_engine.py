"""Owning the generator: its calls, its processes, its folder, and why it may not start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sglang_worker.config.parse import parse_worker_config
from sglang_worker.engine import compat_diffusion, diffusion
from sglang_worker.engine.compat_diffusion import GeneratorFacts, GeneratorFailed, Output
from sglang_worker.engine.death import Death
from sglang_worker.engine.diffusion import GeneratorEngine
from sglang_worker.engine.step_board import Progress, StepBoard
from sglang_worker.errors import ConfigError, EngineStartError

from tests.support.wait import wait_until_async

FACTS = GeneratorFacts("T2I", True, False, False, False, 24)


class BlockingGenerator:
    """`compat_diffusion.Generator` with one real process and calls that block until released."""

    def __init__(self) -> None:
        code = "import sys; sys.stdin.read()"
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        self.release = threading.Event()
        self.failure: Exception | None = None
        self.fields: Mapping[str, Any] = {}
        self.forgotten = False

    @property
    def process_names(self) -> dict[int, str]:
        return {self.process.pid: "rank 0"}

    def generate(self, fields: Mapping[str, Any]) -> list[Output]:
        self.fields = fields
        self.release.wait(30)
        if self.failure is not None:
            raise self.failure
        return [Output("x.png", 64, 64, 1)]

    def forget_processes(self) -> None:
        self.forgotten = True


@pytest.fixture
def generator() -> Iterator[BlockingGenerator]:
    made = BlockingGenerator()
    yield made
    made.release.set()
    made.process.kill()
    made.process.communicate()


@pytest.fixture
def engine(tmp_path: Path, generator: BlockingGenerator) -> Iterator[GeneratorEngine]:
    folder = tmp_path / "folder"
    folder.mkdir()
    board = StepBoard.create(folder / "steps", 1)
    made: Any = generator
    owned = GeneratorEngine(made, FACTS, board, folder, 1.0)
    yield owned
    owned.shutdown()


async def test_a_call_runs_beside_the_loop_and_is_held_until_it_returns(
    engine: GeneratorEngine, generator: BlockingGenerator
) -> None:
    number = engine.new_number()
    done = engine.generate(number, {"prompt": "a cat"}, probe=False)
    assert engine.held_request_ids() == ["generation-1"]
    generator.release.set()
    assert await done == [Output("x.png", 64, 64, 1)]
    assert engine.held_request_ids() == []
    assert generator.fields["request_id"] == "generation-1"
    assert generator.fields["output_path"] == str(engine.folder)


async def test_a_probe_holds_nothing_that_a_shutdown_would_wait_for(
    engine: GeneratorEngine, generator: BlockingGenerator
) -> None:
    done = engine.generate(engine.new_number(), {}, probe=True)
    assert engine.held_request_ids() == []
    generator.release.set()
    await done


async def test_the_generators_failure_arrives_as_it_is(
    engine: GeneratorEngine, generator: BlockingGenerator
) -> None:
    generator.failure = GeneratorFailed("out of memory")
    generator.release.set()
    with pytest.raises(GeneratorFailed, match="out of memory"):
        await engine.generate(engine.new_number(), {}, probe=False)


async def test_a_cancellation_is_on_the_board(engine: GeneratorEngine) -> None:
    rank = StepBoard(engine.folder / "steps", 1)
    assert rank.pass_boundary(0, 1, Progress(0, 9))
    assert engine.progress(1) == Progress(0, 9)
    engine.cancel(1)
    assert not rank.pass_boundary(0, 1, Progress(1, 9))


async def test_a_process_that_dies_is_told_once_and_nothing_is_held_any_more(
    engine: GeneratorEngine, generator: BlockingGenerator
) -> None:
    deaths: list[Death] = []
    engine.watch_deaths(asyncio.get_running_loop(), deaths.append)
    engine.generate(engine.new_number(), {}, probe=False)
    generator.process.kill()
    await wait_until_async(lambda: deaths, "the death is seen")
    assert "rank 0" in str(deaths[0]) and engine.death == deaths[0]
    assert engine.held_request_ids() == []


async def test_shutdown_kills_the_processes_and_removes_the_folder(
    engine: GeneratorEngine, generator: BlockingGenerator
) -> None:
    (engine.folder / "generation-1.png").write_bytes(b"unfinished")
    engine.shutdown()
    engine.shutdown()
    assert generator.process.poll() is not None and generator.forgotten
    assert not engine.folder.exists()
    # A late look and a late cancellation find nothing to touch.
    engine.cancel(1)
    assert engine.progress(1) is None and engine.position() == 0


def test_a_missing_library_is_named_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(compat_diffusion, "missing_libraries", lambda: ["diffusers", "imageio"])
    with pytest.raises(EngineStartError, match="without diffusers, imageio; install them"):
        diffusion.start(config(tmp_path, "--image-diffusion-worker"))


def test_an_unusable_store_is_found_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigError, match="--media-output-fs-url"):
        diffusion.start(config(tmp_path / "file", "--image-diffusion-worker"))


@pytest.mark.parametrize(
    ("flag", "facts", "said"),
    [
        ("--video-generation-worker", FACTS, "the model's pipeline makes images"),
        (
            "--image-diffusion-worker",
            GeneratorFacts("T2V", False, True, False, False, 16),
            "the model's pipeline makes videos",
        ),
        (
            "--image-diffusion-worker",
            GeneratorFacts("I2M", False, False, True, True, 16),
            "the model's pipeline makes I2M",
        ),
    ],
)
def test_a_model_of_the_other_kind_is_refused_and_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flag: str,
    facts: GeneratorFacts,
    said: str,
) -> None:
    monkeypatch.setattr(diffusion.tempfile, "mkdtemp", lambda prefix: str(made(tmp_path)))
    monkeypatch.setattr(compat_diffusion, "missing_libraries", list)
    monkeypatch.setattr(compat_diffusion, "server_arguments", lambda arguments: None)
    monkeypatch.setattr(compat_diffusion, "read_facts", lambda arguments: facts)
    with pytest.raises(EngineStartError, match=f"{flag}: {said}"):
        diffusion.start(config(tmp_path, flag))
    assert not (tmp_path / "work").exists()


def made(folder: Path) -> Path:
    (folder / "work").mkdir()
    return folder / "work"


def config(folder: Path, flag: str) -> Any:
    store = ("--media-output-fs-url", f"file://{folder}/media")
    return parse_worker_config(["--model-path", "org/name", flag, *store], {})
