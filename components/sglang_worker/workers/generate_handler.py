"""The ``generate`` handler of token workers: admission, mapping, relay, cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Any

from sglang_worker.engine import dynamo_compat
from sglang_worker.engine.generation import Generation
from sglang_worker.lifecycle.gate import LateRequest
from sglang_worker.requests.chunks import ChunkWriter, complete_at_once
from sglang_worker.requests.ids import new_probe_id, new_request_id
from sglang_worker.requests.limits import EngineLimits
from sglang_worker.requests.mapping import GenerateCall, map_request
from sglang_worker.requests.multimodal import has_media
from sglang_worker.requests.openai_chat import ChatChunkWriter, Render, preprocess
from sglang_worker.workers.admission import Admission, Ticket
from sglang_worker.workers.failures import EXPECTED
from sglang_worker.workers.in_flight import GenerationsInFlight
from sglang_worker.workers.media_stage import (
    ClientGone,
    MediaStage,
    PreparedMedia,
    failure_of,
)
from sglang_worker.workers.probes import IsProbe
from sglang_worker.workers.request_headers import carried_headers

logger = logging.getLogger(__name__)


class _Run:
    """What one request holds so far."""

    __slots__ = ("generation", "gone", "media", "probe", "ticket")

    def __init__(self, ticket: Ticket, probe: bool) -> None:
        self.ticket = ticket
        self.probe = probe
        self.generation: Generation | None = None
        self.media: PreparedMedia | None = None
        # Resolves when the client has gone.
        self.gone: asyncio.Future[Any] | None = None

    def stop(self) -> None:
        if self.generation is not None:
            self.generation.stop()

    def release_media(self) -> None:
        if self.media is not None:
            self.media.release()


class GenerateHandler(GenerationsInFlight):
    """Serves one endpoint. ``generate`` is what the runtime calls for every request."""

    def __init__(
        self,
        tokenizer_manager: Any,
        limits: EngineLimits,
        admission: Admission,
        is_probe: IsProbe,
        *,
        loras: Callable[[], Collection[str]] = tuple,
        remote_prefill: bool = False,
        traces: bool = False,
        answer_probe: Callable[[], bool] = lambda: True,
        render: Render | None = None,
        media: MediaStage | None = None,
    ) -> None:
        """``render``: chat requests arrive as the client wrote them and are answered as text;
        ``media`` gets the content of what requests contain besides text."""
        super().__init__()
        self._manager = tokenizer_manager
        self._limits = limits
        self._admission = admission
        self._is_probe = is_probe
        self._loras = loras
        self._remote_prefill = remote_prefill
        self._traces = traces
        self._answer_probe = answer_probe
        self._render = render
        self._media = media

    async def generate(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        probe = self._is_probe(request)
        run = _Run(self._admit(probe), probe)
        if probe and not self._answer_probe():
            # A paused engine would hold the probe and so fail the health of a healthy worker.
            yield {"token_ids": [], "finish_reason": "stop"}
            return
        try:
            call = self._map(request, probe)
            if call.is_already_complete:
                for chunk in complete_at_once(call):
                    yield chunk
                return
            generation = await self._begin(run, call, request, context)
            writer = self._writer(call, request, context, probe)
            if (opening := self._opening(call, probe)) is not None:
                yield opening
            first = await generation.first()
            run.release_media()
            if first is None:
                return
            # What follows runs once per chunk: no call and no await more than the relay needs.
            if not generation.stopped and (fresh := writer.write(first)) is not None:
                yield fresh
            async for output in generation.rest():
                if not generation.stopped and (fresh := writer.write(output)) is not None:
                    yield fresh
        except GeneratorExit:
            # The runtime drops the generator of a client that is gone, told or untold.
            run.stop()
            raise
        except ClientGone:
            return
        except (*EXPECTED, RuntimeError) as error:
            # The runtime prints what a handler raises; the cause would only repeat it.
            raise failure_of(error, run.media) from None
        finally:
            self._end(run)

    def _admit(self, probe: bool) -> Ticket:
        try:
            return self._admission.admit(probe=probe)
        except LateRequest as late:
            raise dynamo_compat.worker_unavailable(str(late)) from None

    async def _begin(self, run: _Run, call: GenerateCall, request: Any, context: Any) -> Generation:
        """Fetch the request's media and open its generation, which ends when the client goes.

        Whatever exists when this raises is in ``run``, for `_end` to give back.
        """
        if self._media is not None and has_media(call.fields):
            run.media = await self._media.prepare(self._body(request), context)
        request_id = new_probe_id() if run.probe else new_request_id()
        fields = self._fields(call, context, run.media)
        run.generation = Generation(self._manager, fields, request_id)
        self._live.add(run.generation)
        run.gone = context.async_killed_or_stopped()
        run.gone.add_done_callback(run.generation.stop)
        return run.generation

    def _end(self, run: _Run) -> None:
        if run.gone is not None:
            run.gone.cancel()
        run.release_media()
        if run.generation is not None and run.generation.stopped and not run.probe:
            self.cancelled += 1
        self._leave(run.generation, run.ticket)

    def _map(self, request: Any, probe: bool) -> GenerateCall:
        if self._render is not None and not probe:
            request = preprocess(request, self._render)
        return map_request(
            request, self._limits, loras=self._loras(), remote_prefill=self._remote_prefill
        )

    def _body(self, request: Any) -> Any:
        """The preprocessed request in what the router sent."""
        return request

    def _opening(self, call: GenerateCall, probe: bool) -> dict[str, Any] | None:
        """A chunk that is sent before the engine has answered."""
        return None

    def _writer(
        self, call: GenerateCall, request: Any, context: Any, probe: bool
    ) -> ChunkWriter | ChatChunkWriter:
        if self._render is not None and not probe:
            return ChatChunkWriter(call, request, context.id())
        return ChunkWriter(call)

    def _fields(
        self, call: GenerateCall, context: Any, media: PreparedMedia | None
    ) -> Mapping[str, Any]:
        fields = call.fields
        if media is not None:
            fields = {**fields, **media.fields}
        if self._traces:
            fields = {**fields, "external_trace_header": carried_headers(context)}
        return fields

    def fail_all(self) -> None:
        super().fail_all()
        if self._media is not None:
            self._media.fail_all()

    def fail_all_without_engine(self) -> None:
        super().fail_all_without_engine()
        if self._media is not None:
            self._media.fail_all()
