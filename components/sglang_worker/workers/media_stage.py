"""Between the mapping of a request and its dispatch: getting the content of its media."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.requests.errors import EndedByEngine, InvalidRequest, RefusedByEngine
from sglang_worker.workers.failures import EXPECTED, to_dynamo

Content = TypeVar("Content")
UNAVAILABLE = 503

logger = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client hung up while its media was being fetched; there is nobody to answer."""


class PreparedMedia(msgspec.Struct, frozen=True):
    """``fields``: SGLang's media fields, ready.

    ``explain`` turns what SGLang raised into an error that names the part, or returns it as it
    is. ``release`` gives back what the content occupies elsewhere; calling it again is harmless.
    """

    fields: Mapping[str, Any]
    explain: Callable[[Exception], Exception] = lambda error: error
    release: Callable[[], None] = lambda: None


def media_failure(name: str, error: MediaError | MediaBusy) -> Exception:
    """400 for what is wrong with the part, 503 for what is in order and finds no room: the client
    may try again. Another worker would hardly get it sooner from the same slow hosts, and stays
    free for requests without media."""
    if isinstance(error, MediaError):
        return InvalidRequest(name, str(error))
    logger.warning("%s: %s", name, error)
    return RefusedByEngine(UNAVAILABLE, f"{name}: {error}")


def failure_of(error: Exception, media: PreparedMedia | None) -> Exception:
    """What the runtime gets to see of a request's failure; a fault of the worker as it is."""
    explained = error if media is None else media.explain(error)
    return to_dynamo(explained) if isinstance(explained, EXPECTED) else explained


class MediaStage(Protocol):
    async def prepare(self, request: Mapping[str, Any], context: Any) -> PreparedMedia:
        """Raises InvalidRequest naming the part, ClientGone, or EndedByEngine after `fail_all`."""

    def fail_all(self) -> None:
        """End what is being prepared with an error on which the frontend continues elsewhere."""


class Preparations:
    """Runs preparations that a hang-up or the worker's end cuts short. One event loop."""

    def __init__(self) -> None:
        self._running: set[asyncio.Future[Any]] = set()

    async def run(self, work: Awaitable[Content], context: Any) -> Content:
        """What ``work`` returns or raises."""
        task: asyncio.Future[Content] = asyncio.ensure_future(work)
        gone = context.async_killed_or_stopped()
        self._running.add(task)
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if task.cancelled():
                raise EndedByEngine("the worker is shutting down")
            if not task.done():
                raise ClientGone
            return task.result()
        finally:
            self._running.discard(task)
            gone.cancel()
            task.cancel()

    def fail_all(self) -> None:
        for task in tuple(self._running):
            task.cancel()
