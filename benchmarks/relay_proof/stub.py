"""A tokenizer manager that streams SGLang-shaped outputs as fast as its reader takes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any


class StubManager:
    """Streams ``max_new_tokens`` outputs of one token, one event-loop turn apart.

    The shape of an output is SGLang 0.5.23's with incremental streaming.
    """

    def __init__(self) -> None:
        self.rid_to_state: dict[str, Any] = {}
        self.tokenizer = None
        self.model_config = SimpleNamespace(vocab_size=32000, is_multimodal=False)
        self.server_args = SimpleNamespace(disaggregation_bootstrap_port=0)

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
            await asyncio.sleep(0)
            last = made == count
            yield {
                "text": "x",
                "output_ids": [made % 30000],
                "meta_info": {
                    "id": request_id,
                    "finish_reason": {"type": "length", "length": count} if last else None,
                    "prompt_tokens": 8,
                    "weight_version": "default",
                    "num_retractions": 0,
                    "reasoning_tokens": 0,
                    "completion_tokens": made,
                    "cached_tokens": 0,
                },
            }
        self.rid_to_state.pop(request_id, None)

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
