"""SGLang's maintenance calls, for the routes and the lifecycle.

They go to the tokenizer manager, whose methods are coroutines of the worker's loop; the wrappers
of ``sgl.Engine`` would run that loop from within itself. Each returns SGLang's own result object
or None. Read in SGLang 0.5.23 ``managers/tokenizer_control_mixin.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any


def request_object(name: str, body: Mapping[str, Any]) -> Any:
    """An instance of a request class of SGLang's ``io_struct``, made from a JSON body.

    Raises TypeError naming an unknown or missing field, as the class's constructor does.
    """
    from sglang.srt.managers import io_struct

    return getattr(io_struct, name)(**body)


class EngineControl:
    """Pause, memory, weights, cache and profiling of one engine."""

    def __init__(self, tokenizer_manager: Any) -> None:
        self._manager = tokenizer_manager

    @property
    def is_paused(self) -> bool:
        return bool(self._manager.is_pause)

    async def pause(self, mode: str) -> Any:
        """``abort`` ends what runs; ``retract`` and ``in_place`` hold it. Arrivals are held."""
        return await self._manager.pause_generation(
            request_object("PauseGenerationReqInput", {"mode": mode})
        )

    async def continue_(self, body: Mapping[str, Any]) -> Any:
        return await self._manager.continue_generation(
            request_object("ContinueGenerationReqInput", body)
        )

    async def release_memory(self, tags: list[str]) -> Any:
        return await self._manager.release_memory_occupation(
            request_object("ReleaseMemoryOccupationReqInput", {"tags": tags}), None
        )

    async def resume_memory(self, tags: list[str]) -> Any:
        return await self._manager.resume_memory_occupation(
            request_object("ResumeMemoryOccupationReqInput", {"tags": tags}), None
        )

    async def flush_cache(self) -> Any:
        return await self._manager.flush_cache()

    async def start_profile(self, body: Mapping[str, Any]) -> Any:
        """The body is a ``ProfileReq``, or its fields as keyword arguments in older releases."""
        parameters = inspect.signature(self._manager.start_profile).parameters
        if len(parameters) == 1:
            from sglang.srt.managers.io_struct import ProfileReq, ProfileReqType

            return await self._manager.start_profile(
                ProfileReq(req_type=ProfileReqType.START_PROFILE, **body)
            )
        return await self._manager.start_profile(**body)

    async def stop_profile(self) -> Any:
        return await self._manager.stop_profile()

    async def update_weights_from_disk(self, body: Mapping[str, Any]) -> Any:
        return await self._manager.update_weights_from_disk(
            request_object("UpdateWeightFromDiskReqInput", body), None
        )

    async def update_weights_from_tensor(self, body: Mapping[str, Any]) -> Any:
        return await self._manager.update_weights_from_tensor(
            request_object("UpdateWeightsFromTensorReqInput", body), None
        )

    async def update_weights_from_distributed(self, body: Mapping[str, Any]) -> Any:
        return await self._manager.update_weights_from_distributed(
            request_object("UpdateWeightsFromDistributedReqInput", body), None
        )

    async def update_weights_from_ipc(self, body: Mapping[str, Any]) -> Any:
        return await self._manager.update_weights_from_ipc(
            request_object("UpdateWeightsFromIPCReqInput", body), None
        )

    async def update_weight_version(self, body: Mapping[str, Any]) -> Any:
        """Aborts running requests only when the body asks for it."""
        request = request_object("UpdateWeightVersionReqInput", body)
        if request.abort_all_requests:
            self._manager.abort_request(abort_all=True)
        return await self._manager.update_weight_version(request)

    async def internal_states(self) -> list[dict[str, Any]]:
        """One dictionary per data-parallel rank, asked of the schedulers."""
        states: list[dict[str, Any]] = await self._manager.get_internal_state()
        return states

    async def load_lora(self, name: str, path: str) -> Any:
        return await self._manager.load_lora_adapter(
            request_object("LoadLoRAAdapterReqInput", {"lora_name": name, "lora_path": path})
        )

    async def unload_lora(self, name: str) -> Any:
        return await self._manager.unload_lora_adapter(
            request_object("UnloadLoRAAdapterReqInput", {"lora_name": name})
        )

    def abort_all(self) -> None:
        """Ask the scheduler to end every request; their streams end with a plain abort."""
        self._manager.abort_request(abort_all=True)
