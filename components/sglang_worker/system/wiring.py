"""Connects the running engine and the lifecycle to one route table; called once by ``main``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from sglang_worker.config.worker_config import SystemSettings
from sglang_worker.system.argument_checks import EngineFacts
from sglang_worker.system.binding import bind
from sglang_worker.system.bridge import SyncBridge
from sglang_worker.system.builtin import lifecycle_routes, server_info_route
from sglang_worker.system.configured import BodyLimits, configured_routes
from sglang_worker.system.control import EngineCalls, control_routes
from sglang_worker.system.conversion import RecordField, is_record, record_fields
from sglang_worker.system.lifecycle_port import Guard, LifecyclePort
from sglang_worker.system.loras import LoraCalls, lora_routes
from sglang_worker.system.routes import Description, Route, RouteTable
from sglang_worker.system.server_info import ServerInfo


class EngineParts(msgspec.Struct, frozen=True, kw_only=True):
    """What routes need of an engine; workers without an `sgl.Engine` have none of it."""

    engine: Any
    tokenizer_manager: Any
    calls: EngineCalls
    facts: EngineFacts
    runners: Callable[[], list[dict[str, Any]]] = list
    observe_states: Callable[[list[dict[str, Any]]], None] | None = None


def always_allowed(_operation: str) -> str | None:
    return None


async def build_route_table(
    settings: SystemSettings,
    lifecycle: LifecyclePort,
    engine: EngineParts | None,
    *,
    drainable: bool,
    guard: Guard = always_allowed,
    loras: LoraCalls | None = None,
    model: str | None = None,
) -> RouteTable:
    """All routes of this worker. Call it on the worker's loop, before traffic.

    Binds the configured routes and fills the cache of server_info. ``drainable``: standalone
    aggregated workers only. Raises ConfigError for a descriptor that cannot be bound.
    """
    routes: list[Route] = []
    if drainable:
        routes += lifecycle_routes(lifecycle)
    description = Description(model=model)
    if engine is not None:
        routes += await _engine_routes(settings, lifecycle, engine, guard)
        description = Description(model=model, runners=engine.runners())
    if loras is not None:
        routes += lora_routes(loras)
    return RouteTable(routes, description)


async def _engine_routes(
    settings: SystemSettings, lifecycle: LifecyclePort, engine: EngineParts, guard: Guard
) -> list[Route]:
    limits = BodyLimits(settings.body_limit_bytes, settings.weights_body_limit_bytes)
    bound = bind(settings.routes, engine.engine, engine.tokenizer_manager)
    bridge = SyncBridge(engine.engine)

    async def query_all() -> dict[str, Any]:
        info: dict[str, Any] = await bridge.run(engine.engine.get_server_info, {})
        return info

    async def query_states() -> list[dict[str, Any]]:
        states: list[dict[str, Any]] = await engine.tokenizer_manager.get_internal_state()
        if engine.observe_states is not None:
            engine.observe_states(states)
        return states

    info = ServerInfo(query_all, query_states, engine.runners)
    await info.prime()
    return [
        server_info_route(info),
        *control_routes(engine.calls, lifecycle, guard, request_class, limits, engine.facts),
        *configured_routes(bound, bridge, lifecycle, limits, engine.facts, guard),
    ]


# SGLang fills these in itself; a caller who says "normalized" would skip its checks.
_SAMPLING_INTERNAL = frozenset(
    {
        "stop_strs",
        "stop_regex_strs",
        "stop_str_max_len",
        "stop_regex_max_len",
        "is_normalized",
        "ebnf_full_assistant",
    }
)


def engine_facts(server_args: Any, tokenizer_manager: Any) -> EngineFacts:
    """Read from SGLang's effective server arguments and model configuration."""
    from sglang.srt.configs import load_config
    from sglang.srt.sampling.sampling_params import SamplingParams

    formats = getattr(load_config, "LoadFormat", None)
    return EngineFacts(
        device=str(server_args.device),
        tp_size=int(server_args.tp_size),
        disk_formats=tuple(one.value for one in formats or ()),
        weight_loaders=tuple(getattr(server_args, "custom_weight_loader", None) or ()),
        vocab_size=int(tokenizer_manager.model_config.vocab_size),
        sampling=_sampling_fields(SamplingParams),
    )


def _sampling_fields(record: type) -> dict[str, RecordField]:
    """Empty, that is unchecked, for a release that keeps them otherwise than as a record."""
    if not is_record(record):
        return {}
    return {
        name: field
        for name, field in record_fields(record).items()
        if name not in _SAMPLING_INTERNAL
    }


def request_class(name: str) -> type:
    """SGLang's request class of this name."""
    from sglang.srt.managers import io_struct

    found: type = getattr(io_struct, name)
    return found
