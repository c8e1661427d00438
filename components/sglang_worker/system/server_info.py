"""``/engine/server_info``: SGLang's own dictionary from a cache, with fresh internal states.

All calls share one query to the schedulers. A query that a busy scheduler keeps waiting is never
cancelled (SGLang could not tell its late answer from the next one's); callers get the last value.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from sglang_worker.redaction import redact
from sglang_worker.system.envelope import to_json

logger = logging.getLogger(__name__)

PATIENCE_S = 2.0
STATES_KEY = "internal_states"
AGE_KEY = "internal_states_age_s"
RUNNERS_KEY = "linear_attn_runners"


class ServerInfo:
    """``query_all`` is SGLang's whole `get_server_info`, asked once; ``query_states`` its internal
    states, one per data-parallel rank; ``runners`` the current runner report."""

    def __init__(
        self,
        query_all: Callable[[], Awaitable[dict[str, Any]]],
        query_states: Callable[[], Awaitable[list[dict[str, Any]]]],
        runners: Callable[[], list[dict[str, Any]]],
    ) -> None:
        self._query_all = query_all
        self._query_states = query_states
        self._runners = runners
        self._configuration: dict[str, Any] | None = None
        self._states: Any = None
        self._states_at_s = 0.0
        self._query: asyncio.Task[None] | None = None

    async def prime(self) -> None:
        """Fill the cache; call it once the engine serves and before traffic."""
        if self._configuration is None:
            everything = dict(await self._query_all())
            self._remember(everything.pop(STATES_KEY, []))
            self._configuration = everything

    async def read(self) -> dict[str, Any]:
        """The dictionary, redacted, within `PATIENCE_S` once the cache is primed."""
        if self._configuration is None:
            await self.prime()
        else:
            await self._refresh()
        answer = {
            **(self._configuration or {}),
            STATES_KEY: self._states,
            RUNNERS_KEY: self._runners(),
        }
        age_s = time.monotonic() - self._states_at_s
        if age_s > PATIENCE_S:
            answer[AGE_KEY] = round(age_s, 3)
        redacted: dict[str, Any] = redact(to_json(answer))
        return redacted

    async def _refresh(self) -> None:
        if self._query is None or self._query.done():
            self._query = asyncio.get_running_loop().create_task(self._ask_states())
        await asyncio.wait({self._query}, timeout=PATIENCE_S)

    async def _ask_states(self) -> None:
        try:
            self._remember(await self._query_states())
        except Exception:
            # The age in the answer tells; the next call asks again.
            logger.warning("the schedulers' internal states could not be read", exc_info=True)

    def _remember(self, states: Any) -> None:
        self._states = states
        self._states_at_s = time.monotonic()
