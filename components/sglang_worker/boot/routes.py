"""Gives the listener its routes once the engine runs."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from sglang_worker.boot.startup import Started
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.runners.report import to_builtins
from sglang_worker.system.lifecycle_port import GuardedLifecycle
from sglang_worker.system.listener import SystemListener
from sglang_worker.system.loras import LoraCalls
from sglang_worker.system.routes import RouteTable
from sglang_worker.system.wiring import EngineParts, build_route_table, engine_facts


async def attach_routes(
    started: Started,
    listener: SystemListener,
    lifecycle: GuardedLifecycle,
    *,
    drainable: bool,
    loras: LoraCalls | None = None,
) -> RouteTable:
    """Bind every route and let the listener's child hand calls to this loop."""
    facts: EngineParts | None = None
    if (watch := started.runners) is not None:
        engine = cast(WorkerEngine, started.engine)

        def observe(states: list[dict[str, Any]]) -> None:
            if watch.note(states):
                table.description = msgspec.structs.replace(
                    table.description, runners=to_builtins(watch.reports)
                )
                listener.publish_catalog()

        facts = EngineParts(
            engine=engine.engine,
            tokenizer_manager=engine.tokenizer_manager,
            calls=engine.control,
            facts=engine_facts(engine.server_args, engine.tokenizer_manager),
            runners=lambda: to_builtins(watch.reports),
            observe_states=observe,
        )
    table = await build_route_table(
        started.config.system,
        lifecycle,
        facts,
        drainable=drainable,
        loras=loras,
        guard=lifecycle.guard,
        model=started.config.model.served_model_names[0],
    )
    await listener.attach(table)
    return table
