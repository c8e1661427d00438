"""The ``generate`` handler of image and video workers: admission, mapping, job, answer."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from sglang_worker.engine import dynamo_compat
from sglang_worker.lifecycle.gate import LateRequest
from sglang_worker.media import images
from sglang_worker.media.errors import MediaBusy, MediaError
from sglang_worker.media.load import MediaLoader
from sglang_worker.media_output.store import MediaStore, StorageFailed
from sglang_worker.requests.errors import RefusedByEngine
from sglang_worker.requests.images_and_videos import (
    MAX_SIDE_RATIO,
    MIN_SIDE,
    MediaCall,
    ResponseFormat,
)
from sglang_worker.workers.admission import Admission, Ticket
from sglang_worker.workers.failures import EXPECTED, to_dynamo
from sglang_worker.workers.generation_job import (
    INTERNAL_ERROR,
    Finished,
    GenerationJob,
    MediaGenerator,
)
from sglang_worker.workers.generation_line import GenerationLine, LineFull
from sglang_worker.workers.media_stage import media_failure
from sglang_worker.workers.probes import IsProbe
from sglang_worker.workers.service import RequestsInFlight

Answer = dict[str, Any]

logger = logging.getLogger(__name__)


class MediaKind(msgspec.Struct, frozen=True):
    """What differs between images and videos.

    ``answer`` gets the call, the finished files, their addresses (one entry of ``url`` or
    ``b64_json`` each) and Dynamo's id of the request. ``folder`` is where files are stored.
    """

    folder: str
    map_request: Callable[[Any], MediaCall]
    answer: Callable[[MediaCall, Finished, list[dict[str, str]], str], Answer]


class DiffusionHandler(RequestsInFlight):
    """Serves one endpoint. ``generate`` is what the runtime calls for every request."""

    def __init__(
        self,
        kind: MediaKind,
        generator: MediaGenerator,
        line: GenerationLine,
        store: MediaStore,
        loader: MediaLoader,
        admission: Admission,
        is_probe: IsProbe,
        *,
        traces: bool = False,
    ) -> None:
        self._kind = kind
        self._generator = generator
        self._line = line
        self._store = store
        self._loader = loader
        self._admission = admission
        self._is_probe = is_probe
        self._traces = traces
        self._live: set[GenerationJob] = set()

    async def generate(self, request: Any, context: Any) -> AsyncIterator[Answer]:
        probe = self._is_probe(request)
        try:
            ticket = self._admission.admit(probe=probe)
        except LateRequest as late:
            raise dynamo_compat.worker_unavailable(str(late)) from None
        gone: asyncio.Future[Any] | None = None
        job: GenerationJob | None = None
        reference: Path | None = None
        try:
            call = self._kind.map_request(request)
            gone = context.async_killed_or_stopped()
            reference = await self._reference(call, gone)
            if gone.done():
                return
            job = self._start(call, self._extra(reference, context), probe)
            gone.add_done_callback(job.stop)
            finished = await job.outcome()
            if finished is not None:
                places = await self._places(call, finished)
                yield self._kind.answer(call, finished, places, str(context.id()))
        except LineFull as full:
            raise dynamo_compat.worker_unavailable(str(full)) from None
        except EXPECTED as error:
            # The runtime prints what a handler raises; the cause would only repeat it.
            raise to_dynamo(error) from None
        finally:
            if gone is not None:
                gone.cancel()
            self._leave(job, ticket, reference)

    def _extra(self, reference: Path | None, context: Any) -> dict[str, Any]:
        """Fields of the generator that are not in the request's body."""
        extra: dict[str, Any] = {}
        if reference is not None:
            extra["image_path"] = str(reference)
        if self._traces:
            extra["external_trace_header"] = context.trace_headers()
        return extra

    def _start(self, call: MediaCall, extra: Mapping[str, Any], probe: bool) -> GenerationJob:
        fields = {**call.fields, **extra}
        extension = "jpg" if call.format == "jpeg" else call.format
        job = GenerationJob(self._generator, self._line, fields, extension, probe=probe)
        self._live.add(job)
        return job

    def _leave(self, job: GenerationJob | None, ticket: Ticket, reference: Path | None) -> None:
        """Release the ticket once the generator has let go of the request."""

        def let_go(*_: Any) -> None:
            if job is not None:
                self._live.discard(job)
            if reference is not None:
                reference.unlink(missing_ok=True)
            ticket.release()

        if job is not None and job.stopped and not job.probe:
            self.cancelled += 1
        if job is None or job.ended.done():
            let_go()
            return
        # Dropped by the runtime, untold: nobody waits for the rest.
        job.stop()
        job.ended.add_done_callback(let_go)

    # --- what goes in and out --------------------------------------------------------------------

    async def _reference(self, call: MediaCall, gone: asyncio.Future[Any]) -> Path | None:
        """The guiding image as a file that SGLang may open, fetched and checked by the worker."""
        if call.reference is None:
            return None
        content = await _unless(gone, self._load(call.reference))
        if content is None:
            return None
        return await asyncio.to_thread(_write_private, self._generator.folder, content)

    async def _load(self, reference: str) -> bytes:
        try:
            content = (await self._loader.load(reference, is_image=True)).content
            await self._loader.aside(images.check_sides, content, MIN_SIDE, MAX_SIDE_RATIO)
            if await self._loader.first_damaged([content]) is not None:
                raise MediaError("its content is damaged or cut off")
        except (MediaError, MediaBusy) as error:
            raise media_failure("input_reference", error) from None
        return content

    async def _places(self, call: MediaCall, finished: Finished) -> list[dict[str, str]]:
        """Where each output is found: an URL, or the content itself."""
        if call.response_format is ResponseFormat.B64_JSON:
            texts = await asyncio.to_thread(_base64, finished.contents)
            return [{"b64_json": text} for text in texts]
        try:
            return [
                {"url": await self._store.save(content, self._kind.folder, call.format)}
                for content in finished.contents
            ]
        except StorageFailed as error:
            logger.error("a finished file could not be stored: %s", error)
            raise RefusedByEngine(INTERNAL_ERROR, "the result could not be stored") from None

    # --- ending everything -----------------------------------------------------------------------

    @property
    def live_generations(self) -> int:
        return len(self._live)

    def fail_all(self) -> None:
        """End every request with the error on which the frontend continues elsewhere."""
        for job in tuple(self._live):
            job.fail()

    def fail_all_without_engine(self) -> None:
        """As `fail_all` after a process of the generator died."""
        for job in tuple(self._live):
            job.fail_without_engine()


async def _unless(gone: asyncio.Future[Any], work: Awaitable[bytes]) -> bytes | None:
    """The result, or None when the client went away first."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        return None
    return task.result()


def _write_private(folder: Path, content: bytes) -> Path:
    handle, name = tempfile.mkstemp(prefix="reference-", dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    return Path(name)


def _base64(contents: tuple[bytes, ...]) -> list[str]:
    return [base64.b64encode(content).decode("ascii") for content in contents]
