"""Starts and owns SGLang's image and video generator of this worker."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import itertools
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import uvloop

from sglang_worker.config.diffusion_flags import generator_arguments
from sglang_worker.config.free_ports import free_port
from sglang_worker.config.worker_config import WorkerConfig, WorkerType
from sglang_worker.engine import compat_diffusion, signals
from sglang_worker.engine.children import EntryPoint, kill_trees
from sglang_worker.engine.compat_diffusion import Generator, GeneratorFacts, Output
from sglang_worker.engine.death import Death, DeathWatch
from sglang_worker.engine.diffusion_steps import request_id
from sglang_worker.engine.step_board import Progress, StepBoard
from sglang_worker.errors import EngineStartError, WorkerError
from sglang_worker.media_output.store import open_store

ENTRY = EntryPoint("sglang_worker.engine.compat_diffusion_process", "run")

PORTS = ("port", "scheduler_port", "master_port")

logger = logging.getLogger(__name__)


class GeneratorEngine:
    """`engine.owned.OwnedEngine`: the generator's processes, the step board, the output folder."""

    control = None

    def __init__(
        self,
        generator: Generator,
        facts: GeneratorFacts,
        board: StepBoard,
        folder: Path,
        started_in_s: float,
    ) -> None:
        self.facts = facts
        self.folder = folder
        self.started_in_s = started_in_s
        self.death: Death | None = None
        self._generator = generator
        self._board = board
        self._numbers = itertools.count(1)
        self._held: set[int] = set()
        self._watch: DeathWatch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = False
        atexit.register(self.shutdown)

    # --- one generation --------------------------------------------------------------------------

    def new_number(self) -> int:
        return next(self._numbers)

    def generate(self, number: int, fields: Mapping[str, Any], *, probe: bool) -> Any:
        """A future of the list of `Output`; cancelling the future stops nothing, see `cancel`.

        The call blocks in SGLang, so it gets a thread. The thread is a daemon: when the
        generator's process dies the call never returns, and must not keep the worker alive.
        """
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Output]] = loop.create_future()
        named = {
            **fields,
            "request_id": request_id(number),
            "output_path": str(self.folder),
            "save_output": True,
            "return_file_paths_only": True,
        }
        if not probe:
            self._held.add(number)
        threading.Thread(
            target=self._run,
            args=(loop, number, named, done),
            name=f"generation-{number}",
            daemon=True,
        ).start()
        return done

    def _run(
        self,
        loop: asyncio.AbstractEventLoop,
        number: int,
        fields: Mapping[str, Any],
        done: asyncio.Future[list[Output]],
    ) -> None:
        outputs: list[Output] = []
        failure: Exception | None = None
        try:
            outputs = self._generator.generate(fields)
        except Exception as error:
            failure = error
        # A closed loop: the worker has stopped without waiting for this generation.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._finish, number, done, outputs, failure)

    def _finish(
        self,
        number: int,
        done: asyncio.Future[list[Output]],
        outputs: list[Output],
        failure: Exception | None,
    ) -> None:
        self._held.discard(number)
        if done.done():
            return
        if failure is None:
            done.set_result(outputs)
        else:
            done.set_exception(failure)

    def cancel(self, number: int) -> None:
        """The generation leaves at its next step, or finishes if it has no more steps."""
        if not self._stopped:
            self._board.cancel(number)

    def progress(self, number: int) -> Progress | None:
        return None if self._stopped else self._board.progress(number)

    def position(self) -> int:
        """Changes with every step of any rank."""
        return 0 if self._stopped else self._board.position()

    # --- OwnedEngine -----------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The one that serves; there is no other."""
        if self._loop is None:
            self._loop = uvloop.new_event_loop()
        return self._loop

    def begin(self) -> None:
        self._loop = asyncio.get_running_loop()

    def held_request_ids(self) -> list[str]:
        return [request_id(number) for number in sorted(self._held)]

    def watch_deaths(
        self, loop: asyncio.AbstractEventLoop, on_death: Callable[[Death], None]
    ) -> None:
        def remember(death: Death) -> None:
            self.death = death
            # Nobody will answer these any more.
            self._held.clear()
            on_death(death)

        self._watch = DeathWatch(self._generator.process_names, remember)
        self._watch.start(loop)

    def report_failure(self) -> None:
        if self._watch is not None:
            self._watch.report(Death("a generator process", 0))

    def shutdown(self) -> None:
        """Kill every process of the generator, remove what it wrote. Safe to call twice."""
        if self._stopped:
            return
        self._stopped = True
        if self._watch is not None:
            self._watch.stop()
        kill_trees(list(self._generator.process_names))
        self._generator.forget_processes()
        self._board.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def start(config: WorkerConfig) -> GeneratorEngine:
    """Start the generator and wait until its model is loaded.

    Raises ConfigError for flags that do not fit, EngineStartError with SGLang's own reason.
    """
    arguments = generator_arguments(config.engine.explicit)
    _require_libraries(config)
    # Before minutes of loading.
    open_store(config.dynamo["media_output_fs_url"], config.dynamo.get("media_output_http_url"))
    began_s = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="sglang-worker-media-"))
    try:
        return _start_in(folder, config, arguments, began_s)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _start_in(
    folder: Path, config: WorkerConfig, arguments: Mapping[str, Any], began_s: float
) -> GeneratorEngine:
    signals.own_quit_before_loop()
    try:
        # SGLang looks for free ports beside its defaults; workers that start together collide.
        ports = {name: free_port() for name in PORTS}
        server_args = compat_diffusion.server_arguments({**ports, **arguments})
        facts = compat_diffusion.read_facts(server_args)
        _require_kind(config, facts)
        if not compat_diffusion.is_native(server_args):
            logger.warning(
                "SGLang has no pipeline of its own for this model's name and runs diffusers': "
                "slower, without progress, and a cancelled generation runs to its end"
            )
        ranks, quiet = int(server_args.num_gpus), "log_level" not in arguments
        path = folder / "steps"
        board = StepBoard.create(path, ranks)
        entry = functools.partial(
            ENTRY, str(path), ranks, compat_diffusion.lacks_fused_norms(), quiet
        )
        generator = compat_diffusion.start_generator(server_args, entry, quiet=quiet)
    except WorkerError:
        raise
    except signals.EngineReportedFailure:
        raise EngineStartError(
            "the generator failed to start: a process reported a fatal error, see above"
        ) from None
    except Exception as error:
        raise EngineStartError(f"the generator failed to start: {_reason(error)}") from error
    if board.ready_ranks() < ranks:
        logger.warning(
            "this SGLang shows no denoising steps: no progress is logged, and a cancelled "
            "generation runs to its end"
        )
    logger.info("generator for %s, %s", facts.task, "CPU" if compat_diffusion.on_cpu() else "GPU")
    return GeneratorEngine(generator, facts, board, folder, time.monotonic() - began_s)


def _require_libraries(config: WorkerConfig) -> None:
    missing = compat_diffusion.missing_libraries()
    if missing:
        raise EngineStartError(
            f"a {config.worker_type.value} worker needs SGLang's image and video generator, which "
            f"cannot be imported without {', '.join(missing)}; install them, or sglang[diffusion]"
        )


def _require_kind(config: WorkerConfig, facts: GeneratorFacts) -> None:
    wants_images = config.worker_type is WorkerType.IMAGE_DIFFUSION
    if facts.makes_images if wants_images else facts.makes_videos:
        return
    made = "images" if facts.makes_images else "videos" if facts.makes_videos else facts.task
    flag = "--image-diffusion-worker" if wants_images else "--video-generation-worker"
    raise EngineStartError(f"{flag}: the model's pipeline makes {made} (task {facts.task})")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text or type(error).__name__
