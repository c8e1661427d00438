"""The ``generate`` handler of embedding workers: one request is one batch and one answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

from sglang_worker.engine import compat_embedding, dynamo_compat
from sglang_worker.engine.embedding import EmbeddingBatch
from sglang_worker.engine.tokenizing import Tokenizing
from sglang_worker.lifecycle.gate import LateRequest
from sglang_worker.requests.embedding import (
    EmbeddingCall,
    EmbeddingLimits,
    answer,
    check_prompts,
    map_embedding,
)
from sglang_worker.requests.errors import EndedByEngine
from sglang_worker.requests.ids import new_probe_id, new_request_id
from sglang_worker.workers.admission import Admission
from sglang_worker.workers.failures import EXPECTED, to_dynamo
from sglang_worker.workers.in_flight import GenerationsInFlight
from sglang_worker.workers.probes import IsProbe
from sglang_worker.workers.request_headers import carried_headers

Prompts = Sequence[list[int]]


class EmbeddingHandler(GenerationsInFlight):
    """Serves one endpoint. ``generate`` is what the runtime calls for every request."""

    def __init__(
        self,
        tokenizer_manager: Any,
        limits: EmbeddingLimits,
        admission: Admission,
        is_probe: IsProbe,
        *,
        name: str,
        traces: bool = False,
        answer_probe: Callable[[], bool] = lambda: True,
    ) -> None:
        """``name``: the model's, for answers to requests that carry none."""
        super().__init__()
        self._manager = tokenizer_manager
        self._limits = limits
        self._admission = admission
        self._is_probe = is_probe
        self._name = name
        self._traces = traces
        self._answer_probe = answer_probe
        self._tokenizing = Tokenizing(partial(compat_embedding.tokenize, tokenizer_manager))
        # Tells a request that was being tokenized that `fail_all` has happened meanwhile.
        self._failures = 0

    async def generate(self, request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        probe = self._is_probe(request)
        try:
            ticket = self._admission.admit(probe=probe)
        except LateRequest as late:
            raise dynamo_compat.worker_unavailable(str(late)) from None
        if probe and not self._answer_probe():
            # A paused engine would hold the probe and so fail the health of a healthy worker.
            yield {"object": "list", "data": []}
            return
        batch: EmbeddingBatch | None = None
        gone: asyncio.Future[Any] = context.async_killed_or_stopped()
        try:
            call = map_embedding(request, self._limits)
            prompts = await self._prompts(call)
            new_id = new_probe_id if probe else new_request_id
            ids = [new_id() for _ in prompts]
            batch = EmbeddingBatch(self._manager, self._fields(call, prompts, context), ids)
            self._live.add(batch)
            if gone.done():
                batch.stop()
            gone.add_done_callback(batch.stop)
            outputs = await batch.outputs()
            if outputs is not None:
                yield answer(call, outputs, self._name)
        except GeneratorExit:
            # The runtime drops the generator of a client that is gone, told or untold.
            if batch is not None:
                batch.stop()
            raise
        except EXPECTED as error:
            # The runtime prints what a handler raises; the cause would only repeat it.
            raise to_dynamo(error) from None
        finally:
            gone.cancel()
            if batch is not None and batch.stopped and not probe:
                self.cancelled += 1
            self._leave(batch, ticket)

    async def _prompts(self, call: EmbeddingCall) -> Prompts:
        if call.prompts is not None:
            return call.prompts
        failures = self._failures
        prompts = await self._tokenizing.tokens(call.texts or ())
        if self._failures != failures:
            raise EndedByEngine("the worker is shutting its engine down")
        check_prompts(call, prompts, self._limits.engine)
        return prompts

    def _fields(self, call: EmbeddingCall, prompts: Prompts, context: Any) -> dict[str, Any]:
        fields: dict[str, Any] = {"input_ids": list(prompts), "dimensions": call.dimensions}
        if call.priority is not None:
            fields["priority"] = call.priority
        if self._traces:
            fields["external_trace_header"] = carried_headers(context)
        return fields

    def fail_all(self) -> None:
        self._failures += 1
        super().fail_all()

    def fail_all_without_engine(self) -> None:
        self._failures += 1
        super().fail_all_without_engine()
