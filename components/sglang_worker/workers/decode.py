"""The decode worker in its default, aggregated form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sglang_worker.engine import compat, dynamo_compat
from sglang_worker.engine.control import EngineControl
from sglang_worker.engine.dynamo_compat import ServedEndpoint
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.generate_handler import GenerateHandler
from sglang_worker.workers.health import generate_payload
from sglang_worker.workers.probes import probe_test
from sglang_worker.workers.registration import build_card
from sglang_worker.workers.service import Route, WorkerService


def build(context: WorkerContext) -> WorkerService:
    engine, config = context.engine, context.config
    manager = engine.tokenizer_manager
    key = dynamo_compat.health_check_key()
    control = EngineControl(manager)
    handler = GenerateHandler(
        manager,
        engine.limits,
        context.admission,
        probe_test(key),
        loras=lambda: compat.loaded_loras(manager),
        traces=bool(engine.server_args.enable_trace),
        answer_probe=lambda: not control.is_paused,
    )

    async def clear_kv_blocks(request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        result = await control.flush_cache()
        yield {
            "status": "success" if result.success else "error",
            "message": result.message or "KV cache cleared",
        }

    return WorkerService(
        ServedEndpoint(context.runtime, config.endpoint),
        handler.generate,
        handler,
        build_card(config, engine, runners=context.runners),
        health_payload=generate_payload(
            key,
            manager.tokenizer,
            engine.limits.vocab_size,
            config.health_check_payload or dynamo_compat.health_payload_override(),
        ),
        others=(
            Route(
                ServedEndpoint(context.runtime, config.endpoint.sibling("clear_kv_blocks")),
                clear_kv_blocks,
            ),
        ),
    )
