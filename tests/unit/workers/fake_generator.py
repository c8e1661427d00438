"""A generator that a test steers, and the runtime's context, for the image and video handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sglang_worker.engine.compat_diffusion import Output
from sglang_worker.engine.step_board import Progress


class FakeGenerator:
    """`workers.generation_job.MediaGenerator`: a generation ends when the test ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[Mapping[str, Any]] = []
        self.running: dict[int, asyncio.Future[list[Output]]] = {}
        self.cancelled: list[int] = []
        self.steps: dict[int, Progress] = {}
        self._count = 0

    def new_number(self) -> int:
        self._count += 1
        return self._count

    def generate(
        self, number: int, fields: Mapping[str, Any], *, probe: bool
    ) -> asyncio.Future[list[Output]]:
        self.calls.append(fields)
        self.running[number] = asyncio.get_running_loop().create_future()
        return self.running[number]

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)

    def progress(self, number: int) -> Progress | None:
        return self.steps.get(number)

    # --- the test's side -------------------------------------------------------------------------

    def finish(self, number: int, *contents: bytes) -> None:
        """Write the files as SGLang does, several with an index behind the name."""
        stem, _, extension = str(self.calls[number - 1]["output_file_name"]).partition(".")
        outputs = []
        for index, content in enumerate(contents):
            name = f"{stem}_{index}" if len(contents) > 1 else stem
            path = self.folder / f"{name}.{extension}"
            path.write_bytes(content)
            outputs.append(Output(str(path), 64, 48, 1))
        self.running[number].set_result(outputs)

    def break_(self, number: int, error: Exception) -> None:
        self.running[number].set_exception(error)


class FakeContext:
    """As much of Dynamo's Context as the handlers use."""

    def __init__(self) -> None:
        self.gone: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def id(self) -> str:
        return "request-1"

    def async_killed_or_stopped(self) -> asyncio.Future[bool]:
        return self.gone

    def leave(self) -> None:
        self.gone.set_result(True)


async def settle(rounds: int = 20) -> None:
    """Let tasks and threads take their turns; for conditions use `tests.support.wait`."""
    for _ in range(rounds):
        await asyncio.sleep(0)
