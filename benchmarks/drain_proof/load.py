"""A closed loop of clients that keeps the deployment busy while a phase disturbs it."""

from __future__ import annotations

import asyncio
import itertools
import random
import time

from benchmarks.drain_proof.ask import Result, ask
from benchmarks.drain_proof.judge import Score, Verdict
from benchmarks.drain_proof.plan import Request


class Load:
    """``clients`` coroutines draw requests from the pool until stopped."""

    def __init__(
        self, port: int, model: str, requests: list[Request], references: dict[int, Result]
    ) -> None:
        self._port = port
        self._model = model
        self._requests = requests
        self._references = references
        self._stop = False
        self._tasks: list[asyncio.Task[None]] = []
        self._draw = itertools.cycle(random.Random(1).sample(requests, len(requests)))
        self.score = Score()
        # Seconds that each client rests between two requests; 0 is full load.
        self.rest_s = 0.0
        self.began_s = 0.0
        self.ended_s = 0.0

    def start(self, clients: int) -> None:
        self.began_s = time.monotonic()
        self._tasks = [asyncio.create_task(self._client()) for _ in range(clients)]

    async def stop(self) -> Score:
        """Let every running request end; nothing is cancelled."""
        self._stop = True
        await asyncio.gather(*self._tasks)
        self.ended_s = time.monotonic()
        return self.score

    @property
    def done(self) -> int:
        return self.score.requests

    @property
    def seconds(self) -> float:
        return (self.ended_s or time.monotonic()) - self.began_s

    async def _client(self) -> None:
        while not self._stop:
            request = next(self._draw)
            result = await ask(self._port, request, self._model)
            verdict = self.score.add(request, self._references[request.number], result)
            if verdict is Verdict.FAILED:
                # A dead deployment must not turn the loop into a storm of refused connections.
                await asyncio.sleep(0.05)
            if self.rest_s:
                await asyncio.sleep(self.rest_s)


async def undisturbed(
    port: int, model: str, requests: list[Request], clients: int = 4
) -> dict[int, Result]:
    """Every request once, with log-probabilities, nothing disturbing. Raises when one fails."""
    todo = iter(requests)
    references: dict[int, Result] = {}

    async def client() -> None:
        for request in todo:
            logprobs = request.kind.value in ("unary", "stream")
            result = await ask(port, request, model, logprobs=logprobs)
            if result.error is not None:
                raise RuntimeError(f"undisturbed request {request.number}: {result.error}")
            references[request.number] = result

    await asyncio.gather(*(client() for _ in range(clients)))
    return references
