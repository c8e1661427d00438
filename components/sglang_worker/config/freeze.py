"""The last step of parsing: checked values become the frozen WorkerConfig."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import msgspec

from sglang_worker.config import worker_types
from sglang_worker.config.endpoint import default_endpoint, parse_endpoint, worker_namespace
from sglang_worker.config.environment import RUNTIME_DEADLINE
from sglang_worker.config.log_rules import log_notices
from sglang_worker.config.payload import parse_payload
from sglang_worker.config.rules import Given, split_endpoint_types
from sglang_worker.config.strict_parser import one_line
from sglang_worker.config.values import expand_path
from sglang_worker.config.worker_config import (
    EndpointAddress,
    EngineFlags,
    HealthSettings,
    LifecycleSettings,
    ModelSettings,
    RuntimeSettings,
    SystemSettings,
    WorkerConfig,
)
from sglang_worker.errors import ConfigError
from sglang_worker.system.descriptor import RouteDescriptor
from sglang_worker.system.grammar import parse_descriptors


class EarlyParts(msgspec.Struct, frozen=True):
    """Parts with a grammar of their own; parsing them is also their check."""

    routes: tuple[RouteDescriptor, ...]
    namespace: str
    endpoint: EndpointAddress | None
    health_check_payload: Mapping[str, Any] | None
    structural_tag: Mapping[str, Any] | None


def early_parts(given: Given, environ: Mapping[str, str]) -> EarlyParts:
    dynamo = given.dynamo
    endpoint, payload = dynamo["endpoint"], dynamo["health_check_payload"]
    return EarlyParts(
        routes=parse_descriptors(given.own["engine_routes"]),
        namespace=worker_namespace(
            dynamo.name("namespace", "--namespace"), dynamo["namespace"], environ
        ),
        endpoint=parse_endpoint(dynamo.name("endpoint", "--endpoint"), endpoint)
        if endpoint
        else None,
        health_check_payload=parse_payload(
            dynamo.name("health_check_payload", "--health-check-payload"), payload
        )
        if payload
        else None,
        structural_tag=_structural_tag(dynamo.values),
    )


def _structural_tag(values: Mapping[str, Any]) -> Mapping[str, Any] | None:
    from dynamo.common.configuration.groups import runtime_args

    try:
        return runtime_args.resolve_structural_tag_config(SimpleNamespace(**values))
    except ValueError as failure:
        raise ConfigError(one_line(str(failure))) from failure


def freeze(given: Given, environ: Mapping[str, str]) -> WorkerConfig:
    """Assumes that every rule held."""
    parts = early_parts(given, environ)
    own, dynamo = given.own, given.dynamo
    worker_type = worker_types.decide(given.selection, own.sources)
    return WorkerConfig(
        worker_type=worker_type,
        endpoint=parts.endpoint or default_endpoint(worker_type, parts.namespace),
        engine=EngineFlags(argv=given.sglang.argv, explicit=engine_explicit(given)),
        runtime=RuntimeSettings(
            discovery_backend=dynamo["discovery_backend"],
            request_plane=dynamo["request_plane"],
            response_plane=dynamo["response_plane"],
            event_plane=dynamo["event_plane"],
        ),
        model=_model(given),
        lifecycle=LifecycleSettings(
            routing_grace_s=own["routing_grace_s"], shutdown_timeout_s=own["shutdown_timeout_s"]
        ),
        health=HealthSettings(
            answer_timeout_s=own["health_answer_timeout_s"],
            stall_timeout_s=own["health_stall_timeout_s"],
            canary=own["health_check_enabled"],
            canary_wait_s=own["canary_wait_s"],
            canary_timeout_s=own["canary_timeout_s"],
        ),
        system=system_settings(given, parts),
        runner_report_strict=own["runner_report_strict"],
        reference_platform=own["reference_platform"],
        gateway_workers=own["gateway_workers"],
        dump_config_to=dynamo["dump_config_to"],
        trace_level=own["sglang_trace_level"],
        dynamo={**dynamo.values, "structural_tag": parts.structural_tag},
        router=dynamo.router,
        health_check_payload=parts.health_check_payload,
        embedding_transfer_mode=own["embedding_transfer_mode"],
        environment=dynamo.environment,
        notices=tuple(_notices(given, environ)),
    )


def engine_explicit(given: Given) -> dict[str, Any]:
    """SGLang's explicit values, with those that the worker's own flags imply."""
    explicit = dict(given.sglang.explicit)
    if given.own["enable_multimodal"]:
        explicit["enable_multimodal"] = True
    if given.own["embedding_worker"]:
        explicit["is_embedding"] = True
    if given.selection.role == "encode":
        explicit["enable_multimodal"] = True
        explicit["encoder_only"] = True
    return explicit


def split_served_names(text: str | None) -> tuple[str, ...]:
    """Several names may share the flag, separated by commas or whitespace; the first leads."""
    words = re.split(r"[\s,]+", text or "")
    return tuple(dict.fromkeys(word for word in words if word))


def _model(given: Given) -> ModelSettings:
    own, dynamo, explicit = given.own, given.dynamo, given.sglang.explicit
    template = dynamo["custom_jinja_template"]
    names = split_served_names(explicit.get("served_model_name"))
    return ModelSettings(
        served_model_names=names or (str(explicit["model_path"]),),
        endpoint_types=split_endpoint_types(dynamo["endpoint_types"]),
        tool_call_parser=dynamo["dyn_tool_call_parser"],
        reasoning_parser=dynamo["dyn_reasoning_parser"],
        default_thinking_mode=dynamo["dyn_default_thinking_mode"],
        custom_jinja_template=expand_path(template) if template else None,
        use_sglang_tokenizer=own["use_sglang_tokenizer"],
        exclude_tools_when_tool_choice_none=dynamo["exclude_tools_when_tool_choice_none"],
        frontend_decoding=own["frontend_decoding"],
    )


def system_settings(given: Given, parts: EarlyParts) -> SystemSettings:
    """Needs nothing of SGLang's part of the command line."""
    own = given.own
    return SystemSettings(
        host=own["system_host"],
        port=None if own["system_port"] < 0 else own["system_port"],
        metadata_port=own["metadata_port"],
        token_file=own["system_token_file"],
        routes=parts.routes,
        body_limit_bytes=own["system_body_limit_bytes"],
        weights_body_limit_bytes=own["system_weights_body_limit_bytes"],
    )


def _notices(given: Given, environ: Mapping[str, str]) -> list[str]:
    own = given.own
    notices = []
    if own["use_sglang_tokenizer"]:
        notices.append(
            f"{given.flag('use_sglang_tokenizer')} is deprecated; use --dyn-chat-processor sglang "
            "on the frontend"
        )
    if given.selection.role == "encode" and not given.selection.enable_multimodal:
        notices.append("--disaggregation-mode encode implies --enable-multimodal")
    if own["system_port"] < 0 and own["engine_routes"]:
        notices.append("engine routes have no effect without DYN_SYSTEM_PORT")
    notices += log_notices(given.sglang.explicit)
    if given.dynamo["custom_jinja_template"] and "chat" not in split_endpoint_types(
        given.dynamo["endpoint_types"]
    ):
        notices.append("--custom-jinja-template has no effect without the chat endpoint type")
    budget_s = own["routing_grace_s"] + own["shutdown_timeout_s"]
    if _below(environ.get(RUNTIME_DEADLINE, ""), budget_s):
        notices.append(
            f"{RUNTIME_DEADLINE} is below the worker's own budget of {budget_s:g} s: streams that "
            "still run then end with an error that does not migrate"
        )
    return notices


def _below(text: str, budget_s: float) -> bool:
    try:
        return float(text) < budget_s
    except ValueError:
        return False
