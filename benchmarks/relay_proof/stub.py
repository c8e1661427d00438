"""A tokenizer manager that streams SGLang-shaped outputs, unpaced or at a decode batch's pace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

# A stamp is a time of making, in microseconds of the monotonic clock, cut to this many.
STAMP_MODULUS = 1 << 30


def stamp() -> int:
    return time.monotonic_ns() // 1000 % STAMP_MODULUS


class StubManager:
    """Streams ``max_new_tokens`` outputs of one token; the shape is SGLang 0.5.23's.

    Without a period a stream makes an output in every turn of the event loop. With one, all
    streams make theirs at the same moment, as a decode batch does, and the token is its stamp.
    """

    def __init__(self, period_s: float = 0.0) -> None:
        self.rid_to_state: dict[str, Any] = {}
        self.tokenizer = None
        self.model_config = SimpleNamespace(vocab_size=32000, is_multimodal=False)
        self.server_args = SimpleNamespace(disaggregation_bootstrap_port=0)
        self._period_s = period_s
        self._tick: asyncio.Future[int] | None = None
        self._due_s = 0.0

    async def generate_request(self, request: Any, _: Any) -> AsyncIterator[dict[str, Any]]:
        params = request.sampling_params
        async for output in self.stream(request.rid, params["max_new_tokens"]):
            yield output

    async def stream(self, request_id: str, count: int) -> AsyncIterator[dict[str, Any]]:
        state = SimpleNamespace(
            dispatched=True, time_stats=SimpleNamespace(api_server_dispatch_finish_time=1.0)
        )
        self.rid_to_state[request_id] = state
        for made in range(1, count + 1):
            token = made % 30000
            if self._period_s:
                token = await self._next_tick()
            else:
                await asyncio.sleep(0)
            yield {
                "text": "x",
                "output_ids": [token],
                "meta_info": {
                    "id": request_id,
                    "finish_reason": {"type": "length", "length": count} if made == count else None,
                    "prompt_tokens": 8,
                    "weight_version": "default",
                    "num_retractions": 0,
                    "reasoning_tokens": 0,
                    "completion_tokens": made,
                    "cached_tokens": 0,
                },
            }
        self.rid_to_state.pop(request_id, None)

    def _next_tick(self) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        if self._tick is None:
            self._tick = loop.create_future()
            # From tick to tick, not from now: late readers delay no later tick, and a timer that
            # fires early, as uvloop's do, brings no second one.
            self._due_s += self._period_s
            if self._due_s <= loop.time():
                self._due_s = loop.time() + self._period_s
            loop.call_at(self._due_s, self._strike)
        return self._tick

    def _strike(self) -> None:
        tick, self._tick = self._tick, None
        if tick is not None:
            tick.set_result(stamp())

    def abort_request(self, rid: str = "", abort_all: bool = False) -> None:
        self.rid_to_state.pop(rid, None)


class StubEngine:
    """What upstream's handler needs of ``sgl.Engine``."""

    def __init__(self, manager: StubManager) -> None:
        self.tokenizer_manager = manager
        self.server_args = SimpleNamespace()

    async def async_generate(
        self,
        input_ids: Any = None,
        sampling_params: Any = None,
        rid: Any = None,
        stream: bool = True,
        image_data: Any = None,
        audio_data: Any = None,
        video_data: Any = None,
        require_reasoning: bool = False,
        external_trace_header: Any = None,
        data_parallel_rank: Any = None,
        lora_path: Any = None,
        priority: Any = None,
        cache_salt: Any = None,
    ) -> AsyncIterator[dict[str, Any]]:
        return self.tokenizer_manager.stream(rid, sampling_params["max_new_tokens"])
