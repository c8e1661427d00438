"""The decode worker in its default, aggregated form, and what all token workers share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from sglang_worker.engine import compat, compat_embedding, dynamo_compat
from sglang_worker.engine.control import EngineControl
from sglang_worker.engine.dynamo_compat import Handler, ServedEndpoint
from sglang_worker.requests.mapping import map_request
from sglang_worker.requests.openai_chat import Render
from sglang_worker.workers.background import token_background
from sglang_worker.workers.context import WorkerContext
from sglang_worker.workers.generate_handler import GenerateHandler
from sglang_worker.workers.health import HealthRules, check_override, generate_payload
from sglang_worker.workers.loras import LoraAdapters
from sglang_worker.workers.media_stage import MediaStage
from sglang_worker.workers.multimodal_media import stage_of
from sglang_worker.workers.probes import probe_test
from sglang_worker.workers.registration import ModelCard, build_card
from sglang_worker.workers.request_headers import wants_headers
from sglang_worker.workers.service import Route, WorkerService
from sglang_worker.workers.warm_up import generation_rounds


def build(context: WorkerContext) -> WorkerService:
    return token_worker(context)


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """In what a token worker differs from the aggregated one.

    ``payload`` turns the aggregated worker's health payload into this one's. ``fields`` are of its
    `ModelCard`.
    """

    handler: Callable[..., GenerateHandler] = GenerateHandler
    fields: Mapping[str, Any] = {}
    payload: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda plain: plain
    rules: HealthRules = HealthRules()
    warm_up: Callable[[], Awaitable[None]] | None = None
    media: Callable[[WorkerContext], MediaStage | None] = stage_of


PLAIN = Variant()


def token_worker(context: WorkerContext, variant: Variant = PLAIN) -> WorkerService:
    engine, config = context.engine, context.config
    manager = engine.tokenizer_manager
    compat_embedding.require_generation(manager)
    key = dynamo_compat.health_check_key()
    control = EngineControl(manager)
    card = msgspec.structs.replace(
        build_card(config, engine, runners=context.runners), **variant.fields
    )
    main = ServedEndpoint(context.runtime, config.endpoint)
    loras = build_loras(context, control, main, card)
    handler = variant.handler(
        manager,
        engine.limits,
        context.admission,
        probe_test(key),
        loras=loras.names,
        traces=wants_headers(engine.server_args),
        answer_probe=context.probe_may_use_engine,
        render=chat_renderer(manager.tokenizer) if config.model.use_sglang_tokenizer else None,
        media=variant.media(context),
    )
    check_override(
        config.health_check_payload,
        lambda one: map_request(one.get("request", one), engine.limits),
    )
    payload = variant.payload(
        generate_payload(
            key, manager.tokenizer, engine.limits.vocab_size, config.health_check_payload
        )
    )
    others: dict[str, Handler] = {
        "clear_kv_blocks": clear_kv_blocks(control),
        "load_lora": loras.serve_load,
        "unload_lora": loras.serve_unload,
        "list_loras": loras.serve_list,
    }
    return WorkerService(
        main,
        handler.generate,
        handler,
        card,
        health_payload=payload,
        health_rules=variant.rules,
        others=tuple(
            Route(ServedEndpoint(context.runtime, config.endpoint.sibling(name)), serve)
            for name, serve in others.items()
        ),
        loras=loras,
        warm_up=variant.warm_up,
        first_requests=()
        if engine.server_args.skip_server_warmup
        else (payload, *map(variant.payload, generation_rounds(engine.limits, key))),
        ranks=engine.limits.dp_ranks,
        background=token_background(context, main),
    )


def build_loras(
    context: WorkerContext, control: EngineControl, main: ServedEndpoint, card: ModelCard
) -> LoraAdapters:
    """The adapters of the engine, advertised on the worker's main endpoint."""

    async def publish(name: str) -> None:
        await dynamo_compat.publish_lora(main.endpoint, card, name)

    async def withdraw(name: str) -> None:
        await dynamo_compat.withdraw_lora(main.endpoint, name)

    return LoraAdapters(
        control,
        publish,
        withdraw,
        enabled=bool(context.engine.server_args.enable_lora),
        at_start=compat.loaded_loras(context.engine.tokenizer_manager),
    )


def chat_renderer(tokenizer: Any) -> Render:
    """The model's chat template as SGLang's tokenizer applies it."""

    def render(messages: list[Any], arguments: Mapping[str, Any]) -> list[int]:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **arguments
        )
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
        return ids

    return render


def clear_kv_blocks(control: EngineControl) -> Handler:
    """The endpoint by which an operator empties the prefix cache of an idle worker."""

    async def serve(request: Any, context: Any) -> AsyncIterator[dict[str, Any]]:
        result = await control.flush_cache()
        yield {
            "status": "success" if result.success else "error",
            "message": result.message or "KV cache cleared",
        }

    return serve
