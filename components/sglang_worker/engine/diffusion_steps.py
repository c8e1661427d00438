"""What a rank of the generator does between two denoising steps. No SGLang in here.

Every denoising loop of SGLang counts its steps on a bar that the stage made (`progress_bar`); the
bars are watched instead of the loops, of which each model family has its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from sglang_worker.engine.step_board import Progress, StepBoard

REQUEST_ID = re.compile(r"^generation-(\d+)(?::|$)")


def request_id(number: int) -> str:
    """The id under which SGLang knows a request; its outputs get ``:0``, ``:1`` … behind it."""
    return f"generation-{number}"


def request_number(ids: Iterable[str]) -> int | None:
    """Of several requests run as one, all belong to the same call of ours."""
    for one in ids:
        found = REQUEST_ID.match(one)
        if found:
            return int(found.group(1))
    return None


class GenerationCancelled(Exception):
    """Raised inside the denoising loop; SGLang answers the request with it."""


class StepWatch:
    """Counts the steps of one bar on the board."""

    def __init__(self, board: StepBoard, rank: int, request: int, total: int) -> None:
        self._board = board
        self._rank = rank
        self._request = request
        self._total = total
        self._done = 0
        self._pass()

    def step(self, count: int = 1) -> None:
        """Raises GenerationCancelled when the client does not want the rest."""
        self._done += count
        self._pass()

    def _pass(self) -> None:
        progress = Progress(self._done, self._total)
        if not self._board.pass_boundary(self._rank, self._request, progress):
            raise GenerationCancelled(f"cancelled after step {self._done} of {self._total}")


def watched_steps(iterable: Iterable[Any], watch: StepWatch) -> Iterator[Any]:
    """The iterable, with a boundary behind every item."""
    for item in iterable:
        yield item
        watch.step()


def watch_updates(bar: Any, watch: StepWatch) -> Any:
    """The same bar, with a boundary behind every ``update``."""
    show = bar.update

    def update(count: float | None = 1) -> Any:
        shown = show(count)
        watch.step(int(count or 0))
        return shown

    bar.update = update
    return bar
