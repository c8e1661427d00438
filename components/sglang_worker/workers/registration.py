"""The model card: what the frontends and the router learn about this worker."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.config.worker_config import WorkerConfig, WorkerType
from sglang_worker.engine import compat_ranks
from sglang_worker.engine.capacity import Capacity, model_source, read_capacity
from sglang_worker.engine.dynamo_compat_streams import GROUP_KEY
from sglang_worker.engine.launch import WorkerEngine
from sglang_worker.observability.kv_events import settings
from sglang_worker.requests.disaggregation import BootstrapAddress


class Role(msgspec.Struct, frozen=True):
    """Dynamo's worker type and the peers without which this worker cannot serve."""

    worker_type: str
    needs: tuple[tuple[str, ...], ...] = ()


ROLES: Mapping[WorkerType, Role] = {
    WorkerType.AGGREGATED: Role("Aggregated"),
    WorkerType.DECODE: Role("Decode", (("Prefill",),)),
    WorkerType.PREFILL: Role("Prefill", (("Decode",),)),
    WorkerType.EMBEDDING: Role("Aggregated"),
    WorkerType.LLM_DIFFUSION: Role("Aggregated"),
    WorkerType.NATIVE_MULTIMODAL: Role("Aggregated"),
    WorkerType.NATIVE_MULTIMODAL_DECODE: Role("Decode", (("Prefill",),)),
    WorkerType.NATIVE_MULTIMODAL_PREFILL: Role("Prefill", (("Decode",),)),
    WorkerType.MULTIMODAL_ENCODE: Role("Encode", (("Prefill", "Decode"), ("Aggregated",))),
    WorkerType.INTERNAL_MULTIMODAL: Role("Aggregated", (("Encode",),)),
    WorkerType.INTERNAL_MULTIMODAL_DECODE: Role("Decode", (("Prefill",),)),
    WorkerType.INTERNAL_MULTIMODAL_PREFILL: Role("Prefill", (("Decode",),)),
}


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `dynamo_compat.publish_card` hands to the runtime."""

    source: str
    name: str
    aliases: tuple[str, ...]
    role: Role
    endpoint_types: tuple[str, ...]
    text_input: bool
    capacity: Capacity
    context_length: int | None
    tool_call_parser: str | None
    reasoning_parser: str | None
    exclude_tools_when_tool_choice_none: bool
    custom_template_path: str | None
    max_loras: int | None
    publishes_kv_events: bool
    # Keys of the card's runtime data; values are JSON texts.
    runtime_data: Mapping[str, str]
    # Attributes of Dynamo's ModelRuntimeConfig that the operator's flags set directly.
    attributes: Mapping[str, Any]
    router: Mapping[str, Any]
    # Where decode workers reach a prefill worker; None for every other type.
    bootstrap: BootstrapAddress | None = None
    # The frontend fetches and decodes images and hands over pixels.
    frontend_decoding: bool = False


def build_card(
    config: WorkerConfig,
    engine: WorkerEngine,
    *,
    runners: list[dict[str, Any]] | None = None,
) -> ModelCard:
    """``runners``: the list of DESIGN section 4, for the card's runtime data."""
    args = engine.server_args
    capacity = read_capacity(engine.engine)
    name, *aliases = config.model.served_model_names
    has_loras = bool(getattr(args, "enable_lora", False) or getattr(args, "lora_paths", None))
    return ModelCard(
        source=model_source(engine.engine),
        name=name,
        aliases=tuple(aliases),
        role=ROLES[config.worker_type],
        endpoint_types=config.model.endpoint_types,
        text_input=config.model.use_sglang_tokenizer,
        capacity=capacity,
        context_length=args.context_length or engine.limits.context_length,
        tool_call_parser=config.model.tool_call_parser,
        reasoning_parser=config.model.reasoning_parser,
        exclude_tools_when_tool_choice_none=config.model.exclude_tools_when_tool_choice_none,
        custom_template_path=config.model.custom_jinja_template,
        max_loras=args.max_loras_per_batch if has_loras else None,
        publishes_kv_events=publishes_kv_events(args),
        runtime_data=runtime_data(config, engine, capacity, runners),
        attributes={"kv_state_endpoint": config.dynamo.get("kv_state_endpoint")},
        router=config.router,
        frontend_decoding=config.model.frontend_decoding,
    )


def publishes_kv_events(args: Any) -> bool:
    """Whether SGLang publishes its cache events (``--kv-events-config`` with a real publisher)."""
    return settings.parse(getattr(args, "kv_events_config", None)) is not None


def runtime_data(
    config: WorkerConfig,
    engine: WorkerEngine,
    capacity: Capacity,
    runners: list[dict[str, Any]] | None,
) -> dict[str, str]:
    limits = engine.limits
    data: dict[str, Any] = {
        # Lets the frontend refuse what cannot fit without asking the worker.
        "token_budget": {
            "combined_limit": max(0, limits.usable_context),
            "reject_prompt_overflow": not limits.truncates,
            "reject_total_overflow": limits.rejects_long_totals and not limits.truncates,
        }
    }
    if config.model.default_thinking_mode is not None:
        data["default_thinking_mode"] = config.model.default_thinking_mode
    if capacity.speculation is not None:
        data["spec_decode"] = capacity.speculation
    if limits.reasoning_parser and limits.has_tokenizer:
        # SGLang's grammars wait for the end of the reasoning by themselves.
        data["tool_call_structural_tag_reasoning_gate"] = True
    if runners is not None:
        data["linear_attn_runners"] = runners
    group = compat_ranks.group_address(engine.engine.server_args)
    if group is not None:
        data[GROUP_KEY] = f"dist_init:tcp://{group}"
    return {key: json.dumps(value) for key, value in data.items()}
