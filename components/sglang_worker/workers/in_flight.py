"""The requests that a handler has inside SGLang, each in flight until SGLang has let go of it."""

from __future__ import annotations

import asyncio

from sglang_worker.engine.generation import Generation
from sglang_worker.workers.admission import Ticket
from sglang_worker.workers.service import RequestsInFlight


class GenerationsInFlight(RequestsInFlight):
    """Used from the event loop's thread only."""

    def __init__(self) -> None:
        self._live: set[Generation] = set()
        # asyncio keeps only weak references to tasks.
        self._releases: set[asyncio.Task[None]] = set()

    def _leave(self, generation: Generation | None, ticket: Ticket) -> None:
        """Release the ticket once SGLang holds nothing of the request any more."""
        if generation is None or generation.ended:
            if generation is not None:
                self._live.discard(generation)
            ticket.release()
            return
        # The generator may be closing (GeneratorExit), so the wait cannot happen inside it.
        task = asyncio.get_running_loop().create_task(self._release_later(generation, ticket))
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _release_later(self, generation: Generation, ticket: Ticket) -> None:
        try:
            generation.stop()
            await generation.let_go()
        finally:
            self._live.discard(generation)
            ticket.release()

    # --- ending everything -----------------------------------------------------------------------

    @property
    def live_generations(self) -> int:
        return len(self._live)

    def fail_all(self) -> None:
        """End every request with the error on which the frontend continues elsewhere."""
        for generation in tuple(self._live):
            generation.fail()

    def fail_all_without_engine(self) -> None:
        """As `fail_all` after a process of the engine died."""
        for generation in tuple(self._live):
            generation.fail_without_engine()
