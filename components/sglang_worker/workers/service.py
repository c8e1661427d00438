"""A worker that can serve: its endpoints, their handlers, and its model card."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from sglang_worker.engine import dynamo_compat
from sglang_worker.engine.dynamo_compat import Handler, ServedEndpoint
from sglang_worker.observability.health.probe import Asked
from sglang_worker.workers.health import HealthRules
from sglang_worker.workers.loras import LoraAdapters
from sglang_worker.workers.probes import probe_test, with_probes
from sglang_worker.workers.registration import ModelCard
from sglang_worker.workers.warm_up import send_first

logger = logging.getLogger(__name__)


class Route(msgspec.Struct, frozen=True):
    """One endpoint besides the main one; never withdrawn, so maintenance stays possible."""

    endpoint: ServedEndpoint
    handler: Handler


class Background(Protocol):
    """Work beside the endpoints for as long as they are served, e.g. relaying KV events."""

    async def start(self) -> None:
        """Raising fails the worker's start."""

    def stop(self) -> None:
        """Safe to call twice, and without a start."""


class RequestsInFlight:
    """What shutdown needs of a handler; a handler without live requests inherits it as it is.

    ``cancelled`` counts requests whose client went away before their end.
    """

    cancelled = 0

    @property
    def live_generations(self) -> int:
        return 0

    def fail_all(self) -> None:
        """End every request with an error on which the frontend continues elsewhere."""

    def fail_all_without_engine(self) -> None:
        """As `fail_all` after a process of the engine died."""


class WorkerService:
    """Serves in the order that keeps registration in one hand.

    `start_serving` returns once the runtime's implicit registration is confirmed, while no model
    card exists and so nobody routes here; `warm_up` takes the first, slow requests: what the type
    does itself, then ``first_requests`` through the handler, to each of ``ranks``; `publish` then
    makes the worker known. A warm-up that fails fails the worker's start.
    """

    def __init__(
        self,
        main: ServedEndpoint,
        handler: Handler,
        requests: RequestsInFlight,
        card: ModelCard,
        *,
        health_payload: Mapping[str, Any],
        health_rules: HealthRules = HealthRules(),  # noqa: B008
        others: tuple[Route, ...] = (),
        loras: LoraAdapters | None = None,
        warm_up: Callable[[], Awaitable[None]] | None = None,
        first_requests: Sequence[Mapping[str, Any]] = (),
        ranks: int = 1,
        background: Sequence[Background] = (),
    ) -> None:
        self.main = main
        self.requests = requests
        self.loras = loras
        self._handler = handler
        self._card = card
        self._health_payload = health_payload
        self.health_rules = health_rules
        self._canary_answer: Handler | None = None
        self._others = others
        self._warm_up = warm_up
        self._first_requests = tuple(first_requests)
        self._ranks = ranks
        self._background = tuple(background)

    @property
    def worker_id(self) -> int:
        return self.main.worker_id

    @property
    def background(self) -> tuple[Background, ...]:
        return self._background

    def _labels(self) -> list[tuple[str, str]]:
        return [("model", self._card.name)]

    def probe(self, payload: Mapping[str, Any] | None = None) -> Asked:
        """A marked request, the health payload by default, to be sent through the own handler."""
        return Asked(
            handler=self._handler,
            payload=self._health_payload if payload is None else payload,
            normal_end=self.health_rules.normal_end,
            for_rank=self.health_rules.for_rank,
            new_context=dynamo_compat.new_context,
            ranks=self._ranks,
        )

    @property
    def cold(self) -> bool:
        """Nothing precedes the first probe."""
        return not self._first_requests

    def answer_canary(self, answer: Handler) -> None:
        """Let the runtime probe the endpoint, and ``answer`` its probes. Before serving begins.

        Without it the runtime gets no payload: its own health is then what `set_health` says,
        while with a payload only its canary decides.
        """
        self._canary_answer = answer

    async def start_serving(self) -> None:
        handler, payload, answer = self._handler, None, self._canary_answer
        if answer is not None:
            payload = self._health_payload
            handler = with_probes(handler, probe_test(dynamo_compat.health_check_key()), answer)
        self.main.serve(handler, labels=self._labels(), health_payload=payload)
        for route in self._others:
            route.endpoint.serve(route.handler, labels=self._labels())
        await self.main.implicit_registration()
        for work in self._background:
            await work.start()

    def stop_background(self) -> None:
        for work in self._background:
            work.stop()

    async def warm_up(self) -> None:
        if self._warm_up is not None:
            await self._warm_up()
        if self._first_requests:
            await send_first(self.probe, self._first_requests)

    async def publish(self) -> None:
        await dynamo_compat.publish_card(self.main.endpoint, self._card)
        if self.loras is not None:
            await self.loras.publish_loaded()
        logger.info(
            "registered model %s as instance %d of %s",
            self._card.name,
            self.worker_id,
            self.main.address.path,
        )

    async def register(self) -> None:
        """`lifecycle.registration.Discovery`: returns once discovery has confirmed."""
        await self.main.register()

    async def withdraw(self) -> None:
        await self.main.withdraw()

    async def ended(self) -> None:
        """Return when nothing is served any more; raises what serving raised."""
        tasks = [
            endpoint.task
            for endpoint in (self.main, *(route.endpoint for route in self._others))
            if endpoint.task is not None
        ]
        await asyncio.gather(*tasks)
