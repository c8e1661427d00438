"""The frozen configuration -> SGLang's ServerArgs, platform defaults merged in."""

from __future__ import annotations

import argparse
import copy
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sglang_worker.config import node_rules, platform, sglang_flags
from sglang_worker.config.free_ports import free_block, free_port
from sglang_worker.config.log_rules import log_defaults
from sglang_worker.config.model_rules import check_models
from sglang_worker.config.sglang_flags import MODE_FLAG
from sglang_worker.config.strict_parser import one_line
from sglang_worker.config.worker_config import WorkerConfig, WorkerType
from sglang_worker.errors import ConfigError
from sglang_worker.observability import forward_passes
from sglang_worker.observability.kv_events.settings import with_router_format
from sglang_worker.redaction import redact_command

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

# SGLang 0.5.23's `PortArgs.init_new`: so many ports from so far above `--port`.
ATTENTION_PORTS, ATTENTION_PORTS_FROM = 7, 233
# A diffusion language model computes whole blocks per request; upstream's bound.
DLLM_MAX_RUNNING_REQUESTS = 8


def build_server_args(config: WorkerConfig) -> ServerArgs:
    """Raises ConfigError when the model, SGLang or the CPU platform refuses the flags."""
    check_models(config)
    namespace = sglang_flags.parse_namespace(sglang_flags.build_parser(), config.engine.argv)
    defaults = {**disaggregation_defaults(config), **platform_defaults(config)}
    for dest, value in overrides(config, defaults).items():
        setattr(namespace, dest, value)
    _keep_bookkeeping(namespace, config)
    server_args = _resolve(namespace)
    if config.worker_type is WorkerType.EMBEDDING:
        whole = whole_prompts(config, server_args)
        if whole:
            vars(namespace).update(whole)
            server_args = _resolve(namespace)
    server_args._launch_command = redact_command(["sglang-worker", *config.engine.argv])
    return server_args


def _resolve(namespace: argparse.Namespace) -> ServerArgs:
    from sglang.srt.server_args import ServerArgs

    try:
        return ServerArgs.from_cli_args(copy.copy(namespace))
    except (ValueError, TypeError, AssertionError, OSError) as failure:
        raise ConfigError(
            one_line(f"SGLang refused the configuration: {failure or type(failure).__name__}")
        ) from failure


def whole_prompts(config: WorkerConfig, server_args: ServerArgs) -> Mapping[str, Any]:
    """What must be set so that SGLang computes each prompt in one piece, for models whose
    attention looks both ways: there a cached beginning or a chunk has seen too little, and SGLang
    would answer with vectors that are plainly wrong. Empty for others."""
    from sglang_worker.engine import compat_embedding

    model = compat_embedding.model_of(compat_embedding.model_config(server_args))
    missing = compat_embedding.split_prompts(server_args) if model.bidirectional else {}
    chunk = config.engine.explicit.get("chunked_prefill_size")
    if chunk is not None and "chunked_prefill_size" in missing:
        raise ConfigError(
            f"--chunked-prefill-size {chunk} is refused for {model.architecture}: its attention "
            "looks both ways, so a prompt cannot be computed in chunks; accepted: -1"
        )
    return missing


def platform_defaults(config: WorkerConfig) -> Mapping[str, Any]:
    """Defaults of the CPU reference platform; empty elsewhere. Refuses what it cannot run."""
    environ = {**os.environ, platform.VARIABLE: config.reference_platform}
    refused = platform.refusals(environ, config.engine.explicit)
    if refused:
        raise ConfigError(
            f"the CPU reference platform cannot run this configuration: {'; '.join(refused)}"
        )
    return platform.engine_defaults(environ, config.engine.explicit)


def disaggregation_defaults(config: WorkerConfig) -> Mapping[str, Any]:
    """A prefill worker listens where the decode workers of other machines can reach it."""
    if config.engine.explicit.get("disaggregation_mode") != "prefill":
        return {}
    from sglang_worker.engine import bootstrap, compat_disagg

    try:
        return {"host": bootstrap.listen_host(compat_disagg.local_address())}
    except ValueError as failure:
        raise ConfigError(
            f"{MODE_FLAG} prefill found no address of this machine to tell decode workers: "
            f"{failure}; set SGLANG_HOST_IP"
        ) from None


def overrides(config: WorkerConfig, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """What the worker sets on SGLang's namespace, by destination."""
    explicit = config.engine.explicit
    wanted = {dest: value for dest, value in defaults.items() if dest not in explicit}
    # Values that the worker's own flags imply (is_embedding, encoder_only, enable_multimodal).
    wanted.update(explicit)
    wanted.update(log_defaults(explicit))
    wanted["served_model_name"] = config.model.served_model_names[0]
    # Dynamo's chunks are disjoint; SGLang's default repeats all earlier tokens.
    wanted["incremental_streaming_output"] = True
    if explicit.get("kv_events_config"):
        wanted["kv_events_config"] = with_router_format(explicit["kv_events_config"])
    wanted.update(forward_passes.engine_flags(config, os.environ))
    for field, port in ports(explicit).items():
        wanted.setdefault(field, port)
    if config.gateway_workers > 1:
        # From two on SGLang lets other processes join as tokenizers.
        wanted["tokenizer_worker_num"] = config.gateway_workers
    if config.worker_type is WorkerType.LLM_DIFFUSION:
        wanted.setdefault("max_running_requests", DLLM_MAX_RUNNING_REQUESTS)
    return wanted


def ports(explicit: Mapping[str, Any]) -> Mapping[str, int]:
    """Ports that workers of one host must not share, where the operator left them open.

    Data-parallel attention derives its ports from that of the HTTP server, which a worker lacks;
    data-parallel replicas meet on ports that SGLang's controller takes one after the other.
    """
    found: dict[str, int] = {}
    if explicit.get("disaggregation_mode") in ("prefill", "decode"):
        found["disaggregation_bootstrap_port"] = free_port()
    if explicit.get("dist_init_addr"):
        return found
    if node_rules.shares_attention(explicit):
        found["port"] = free_block(ATTENTION_PORTS) - ATTENTION_PORTS_FROM
    if node_rules.shares_attention(explicit) or int(explicit.get("dp_size") or 1) == 1:
        found["nccl_port"] = free_port()
    return found


def _keep_bookkeeping(namespace: argparse.Namespace, config: WorkerConfig) -> None:
    """What SGLang's own entry point remembers about how the flags were given."""
    namespace._radix_eviction_policy_explicitly_set = (
        "radix_eviction_policy" in config.engine.explicit
    )
