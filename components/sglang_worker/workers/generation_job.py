"""One image or video request from its turn in the line to the finished files.

A job outlives its client: a generation that is cancelled ends only at its next step, and until
then the generator, and the request's place among those in flight, stay taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sglang_worker.engine.compat_diffusion import GeneratorFailed, Output
from sglang_worker.engine.step_board import Progress
from sglang_worker.requests.errors import EndedByEngine, RefusedByEngine
from sglang_worker.workers.generation_line import GenerationLine

LOOK_INTERVAL_S = 1.0
# At most one line of progress per generation in this time.
LOG_INTERVAL_S = 5.0
INTERNAL_ERROR = 500
# Fields of the generator that are no business of the log's.
HIDDEN = frozenset(
    {"prompt", "negative_prompt", "image_path", "output_compression", "external_trace_header"}
)

logger = logging.getLogger(__name__)


class MediaGenerator(Protocol):
    """What a job needs of `engine.diffusion.GeneratorEngine`."""

    folder: Path

    def new_number(self) -> int: ...

    def generate(self, number: int, fields: Mapping[str, Any], *, probe: bool) -> Any: ...

    def cancel(self, number: int) -> None: ...

    def progress(self, number: int) -> Progress | None: ...


class Finished(msgspec.Struct, frozen=True):
    """The files' contents, in the order of the request's outputs."""

    contents: tuple[bytes, ...]
    outputs: tuple[Output, ...]
    took_s: float


class GenerationJob:
    """Used from one event loop. ``ended`` resolves when the generator has let go."""

    def __init__(
        self,
        generator: MediaGenerator,
        line: GenerationLine,
        fields: Mapping[str, Any],
        extension: str,
        *,
        probe: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.number = generator.new_number()
        self.probe = probe
        self.stopped = False
        self._generator = generator
        self._line = line
        self._fields = fields
        self._extension = extension
        self._clock = clock
        self._running = False
        loop = asyncio.get_running_loop()
        self._outcome: asyncio.Future[Finished | None] = loop.create_future()
        # Nobody may be left to hear of a failure.
        self._outcome.add_done_callback(_heard)
        self.ended: asyncio.Task[None] = loop.create_task(self._run(), name=self.name)

    @property
    def name(self) -> str:
        return f"generation-{self.number}"

    async def outcome(self) -> Finished | None:
        """The files, or None when the client went away.

        Raises LineFull, EndedByEngine, RefusedByEngine, or ValueError for what SGLang refuses.
        """
        return await asyncio.shield(self._outcome)

    # --- ending it early -------------------------------------------------------------------------

    def stop(self, *_: Any) -> None:
        """The client is gone. Takes a future's callback argument, too."""
        self.stopped = True
        self._end(None)

    def fail(self) -> None:
        """The worker stops: the request can go on elsewhere."""
        self._end(EndedByEngine("the worker stopped before the generation was finished"))

    def fail_without_engine(self) -> None:
        self._end(EndedByEngine("the generator died"), ask=False)
        self.ended.cancel()

    def _end(self, reason: Exception | None, *, ask: bool = True) -> None:
        if self._outcome.done():
            return
        if reason is None:
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(reason)
        if not self._running:
            self.ended.cancel()
        elif ask:
            logger.info("%s: cancelled", self.name)
            self._generator.cancel(self.number)

    # --- running ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            async with self._line.turn(front=self.probe):
                self._running = True
                finished = await self._generate()
            self._settle(finished)
        except asyncio.CancelledError:
            self._settle(None)
        except GeneratorFailed as error:
            self._settle(self._refusal(error))
        except Exception as error:
            self._settle(error)

    def _refusal(self, error: GeneratorFailed) -> RefusedByEngine:
        reason = _first_line(error)
        if self._outcome.done():
            logger.info("%s: the generator has let go (%s)", self.name, reason)
        else:
            logger.error("%s failed: %s", self.name, error)
        return RefusedByEngine(INTERNAL_ERROR, f"the generation failed: {reason}")

    def _settle(self, result: Finished | Exception | None) -> None:
        if self._outcome.done():
            return
        if isinstance(result, Exception):
            self._outcome.set_exception(result)
        else:
            self._outcome.set_result(result)

    async def _generate(self) -> Finished | None:
        began_s = self._clock()
        name = f"{self.name}.{self._extension}"
        self._log("%s: %s", self.name, describe(self._fields))
        try:
            done = self._generator.generate(
                self.number, {**self._fields, "output_file_name": name}, probe=self.probe
            )
            await self._watch(done, began_s)
            outputs: list[Output] = done.result()
            if self._outcome.done():
                return None
            contents = await asyncio.to_thread(_read, outputs)
        finally:
            await asyncio.to_thread(_remove, self._generator.folder, self.name)
        took_s = self._clock() - began_s
        total = sum(map(len, contents))
        self._log("%s: finished in %.1f s, %d bytes", self.name, took_s, total)
        return Finished(contents, tuple(outputs), took_s)

    async def _watch(self, done: asyncio.Future[Any], began_s: float) -> None:
        """Wait for the generation, and say now and then how far it is."""
        said_s, said = began_s, None
        while not done.done():
            await asyncio.wait({done}, timeout=LOOK_INTERVAL_S)
            now_s, progress = self._clock(), self._generator.progress(self.number)
            if done.done() or progress in (None, said) or now_s - said_s < LOG_INTERVAL_S:
                continue
            said_s, said = now_s, progress
            self._log(
                "%s: step %d of %d after %.0f s",
                self.name,
                progress.done,
                progress.total,
                now_s - began_s,
            )

    def _log(self, text: str, *values: Any) -> None:
        logger.log(logging.DEBUG if self.probe else logging.INFO, text, *values)


def describe(fields: Mapping[str, Any]) -> str:
    """A request in the log: everything but the prompts."""
    return ", ".join(f"{name} {value}" for name, value in fields.items() if name not in HIDDEN)


def _read(outputs: list[Output]) -> tuple[bytes, ...]:
    return tuple(Path(output.path).read_bytes() for output in outputs)


def _remove(folder: Path, name: str) -> None:
    """Whatever a generation wrote, finished or not; the index of an output stands behind ``_``."""
    for path in folder.glob(f"{name}[._]*"):
        with contextlib.suppress(OSError):
            os.unlink(path)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _heard(outcome: asyncio.Future[Any]) -> None:
    if not outcome.cancelled():
        outcome.exception()
