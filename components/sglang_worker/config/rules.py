"""The validation table: each rule looks at what was given and raises one ConfigError.

`EARLY` runs before SGLang is imported, so that most mistakes end the program at once; `LATE`
needs SGLang's part of the command line.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from sglang_worker.config import diffusion_flags, type_rules, worker_types
from sglang_worker.config.dynamo_flags import DynamoValues
from sglang_worker.config.flags import BY_DEST
from sglang_worker.config.gateway_rules import (
    HIGHEST_METADATA_PORT,
    check_gateway_routes,
    check_gateways,
)
from sglang_worker.config.log_rules import check_tracing
from sglang_worker.config.model_path import check_paths
from sglang_worker.config.node_rules import check_nodes, data_parallel_ranks
from sglang_worker.config.own_flags import OwnValues
from sglang_worker.config.port_rules import check_ports
from sglang_worker.config.refused import check_refused_dests
from sglang_worker.config.sglang_flags import SglangValues
from sglang_worker.config.values import expand_path, is_file
from sglang_worker.errors import ConfigError
from sglang_worker.observability.kv_events import settings
from sglang_worker.system.grammar import parse_descriptors

ENDPOINT_TYPES = ("chat", "completions", "none")


class Given(msgspec.Struct, frozen=True):
    """All that was parsed; ``sglang`` is empty for the early rules."""

    own: OwnValues
    dynamo: DynamoValues
    sglang: SglangValues = SglangValues(argv=(), explicit={}, mode=None)

    def flag(self, dest: str) -> str:
        return self.own.name(BY_DEST[dest])

    @property
    def selection(self) -> worker_types.Selection:
        return worker_types.Selection(
            embedding=self.own["embedding_worker"],
            image_diffusion=self.own["image_diffusion_worker"],
            video_generation=self.own["video_generation_worker"],
            dllm_algorithm=self.sglang.explicit.get("dllm_algorithm"),
            enable_multimodal=self.own["enable_multimodal"]
            or bool(self.sglang.explicit.get("enable_multimodal")),
            dedicated_mm_encoder=self.own["dedicated_mm_encoder"],
            mode=self.sglang.mode,
        )


def _disagg_pair(given: Given) -> None:
    file, key = given.own["disagg_config"], given.own["disagg_config_key"]
    if (file is None) == (key is None):
        return
    present, missing = (
        (given.flag("disagg_config"), "--disagg-config-key")
        if key is None
        else (given.flag("disagg_config_key"), "--disagg-config")
    )
    raise ConfigError(f"{present} needs {missing}: the two are given together")


def _own_worker_types(given: Given) -> None:
    """What the worker's own flags already exclude; the mode may still come from a file."""
    selection = given.selection
    if selection.dedicated_mm_encoder and not selection.enable_multimodal:
        raise ConfigError(f"{given.flag('dedicated_mm_encoder')} needs --enable-multimodal")
    worker_types.decide(
        msgspec.structs.replace(selection, mode="pd" if selection.dedicated_mm_encoder else None),
        given.own.sources,
    )


def _frontend_decoding(given: Given) -> None:
    if given.own["frontend_decoding"] and given.own["dedicated_mm_encoder"]:
        raise ConfigError(
            f"{given.flag('frontend_decoding')} is refused with "
            f"{given.flag('dedicated_mm_encoder')}: internal multimodal workers receive "
            "embeddings; pass it to the encode worker that the frontend talks to"
        )


def _chat_template(given: Given) -> None:
    template = given.dynamo["custom_jinja_template"]
    if not template:
        return
    name = given.dynamo.name("custom_jinja_template", "--custom-jinja-template")
    if given.own["use_sglang_tokenizer"]:
        raise ConfigError(
            f"{name} is refused with {given.flag('use_sglang_tokenizer')}: SGLang's tokenizer "
            "applies SGLang's own --chat-template instead"
        )
    if not is_file(expand_path(template)):
        raise ConfigError(f"{name}={template!r} is not an existing file")


def _ports(given: Given) -> None:
    port, metadata_port = given.own["system_port"], given.own["metadata_port"]
    if metadata_port and metadata_port == port:
        raise ConfigError(
            f"{given.flag('metadata_port')}={metadata_port} is also DYN_SYSTEM_PORT; "
            "the two servers need two ports"
        )


def _token_file(given: Given) -> None:
    path = given.own["system_token_file"]
    if path is not None and os.path.getsize(path) == 0:
        raise ConfigError(f"{given.flag('system_token_file')}={path!r} is empty")


def _positive_limits(given: Given) -> None:
    for dest, flag in (
        ("engine_request_limit", "--engine-request-limit"),
        ("tcp_tls_handshake_timeout_secs", "--tcp-tls-handshake-timeout"),
    ):
        value = given.dynamo[dest]
        if value is not None and value <= 0:
            raise ConfigError(f"{given.dynamo.name(dest, flag)}={value} must be above 0")


def _endpoint_types(given: Given) -> None:
    name = given.dynamo.name("endpoint_types", "--endpoint-types")
    types = split_endpoint_types(given.dynamo["endpoint_types"])
    unknown = [word for word in types if word not in ENDPOINT_TYPES]
    if unknown or not types:
        raise ConfigError(
            f"{name}={given.dynamo['endpoint_types']!r} is not known; accepted, separated by "
            f"commas: {', '.join(ENDPOINT_TYPES)}"
        )
    if "none" in types and len(types) > 1:
        raise ConfigError(f"{name}: none cannot be combined with other endpoint types")


def split_endpoint_types(text: str) -> tuple[str, ...]:
    words = (word.strip().lower() for word in str(text).split(","))
    return tuple(dict.fromkeys(word for word in words if word))


def _output_modalities(given: Given) -> None:
    from dynamo.common.utils.output_modalities import OutputModality

    accepted = sorted(OutputModality.valid_names())
    unknown = [m for m in given.dynamo["output_modalities"] or () if m.lower() not in accepted]
    if unknown:
        name = given.dynamo.name("output_modalities", "--output-modalities")
        raise ConfigError(f"{name}: unknown {unknown[0]!r}; accepted: {', '.join(accepted)}")


def _parser_conflicts(given: Given) -> None:
    """One parser of each kind; Dynamo's flag takes the frontend's names, SGLang's its own."""
    for native, dest in (
        ("tool_call_parser", "dyn_tool_call_parser"),
        ("reasoning_parser", "dyn_reasoning_parser"),
    ):
        if not (given.sglang.explicit.get(native) and given.dynamo[dest]):
            continue
        ours = given.dynamo.name(dest, "--" + dest.replace("_", "-"))
        raise ConfigError(
            f"--{native.replace('_', '-')} and {ours} are both given; keep one. {ours} accepts: "
            f"{', '.join(accepted_parsers(dest))}"
        )


def accepted_parsers(dest: str) -> list[str]:
    from dynamo._core import get_reasoning_parser_names, get_tool_parser_names

    names = get_tool_parser_names if dest == "dyn_tool_call_parser" else get_reasoning_parser_names
    return sorted(names())


def _worker_type(given: Given) -> None:
    worker_types.decide(given.selection, given.own.sources)


def _remote_prefill_tokens(given: Given) -> None:
    if given.own["use_sglang_tokenizer"] and given.sglang.mode in ("prefill", "decode"):
        raise ConfigError(
            f"{given.flag('use_sglang_tokenizer')} is refused with --disaggregation-mode "
            f"{given.sglang.mode}: the frontend sends text past its prefill router"
        )


def _gateways(given: Given) -> None:
    check_gateways(
        given.own["gateway_workers"],
        given.flag("gateway_workers"),
        worker_types.decide(given.selection, given.own.sources),
        given.sglang.explicit,
    )


def _gateway_routes(given: Given) -> None:
    if given.own["gateway_workers"] > 1:
        check_gateway_routes(
            parse_descriptors(given.own["engine_routes"]), given.flag("gateway_workers")
        )


def _gateway_ports(given: Given) -> None:
    count, first = given.own["gateway_workers"], given.own["metadata_port"]
    last = first + count - 1
    if count <= 1 or not first:
        return
    if last > HIGHEST_METADATA_PORT or first <= given.own["system_port"] <= last:
        raise ConfigError(
            f"{given.flag('metadata_port')}={first} with {given.flag('gateway_workers')}={count} "
            f"takes the ports {first} to {last}: all must be at most {HIGHEST_METADATA_PORT} and "
            "none DYN_SYSTEM_PORT"
        )


def _kv_events(given: Given) -> None:
    explicit = given.sglang.explicit
    found = settings.parse(explicit.get("kv_events_config"))
    if found is not None:
        settings.check_ports(found, data_parallel_ranks(explicit))


def _nodes(given: Given) -> None:
    check_nodes(given.sglang.explicit)
    check_ports(given.sglang.explicit)


def _diffusion(given: Given) -> None:
    diffusion_flags.check_flags(
        worker_types.decide(given.selection, given.own.sources),
        given.sglang.explicit,
        {**given.dynamo.sources, **given.own.sources},
        given.dynamo["output_modalities"],
    )


def _type_flags(given: Given) -> None:
    type_rules.check_type(
        worker_types.decide(given.selection, given.own.sources),
        given.sglang.explicit,
        {**given.dynamo.sources, **given.own.sources},
    )


def _tracing(given: Given) -> None:
    check_tracing(given.sglang.explicit)


def _refused_in_files(given: Given) -> None:
    check_refused_dests(given.sglang.explicit)


def _paths(given: Given) -> None:
    check_paths(given.sglang.explicit)


Rule = Callable[[Given], Any]
EARLY: tuple[Rule, ...] = (
    _disagg_pair,
    _own_worker_types,
    _frontend_decoding,
    _chat_template,
    _ports,
    _token_file,
    _positive_limits,
    _endpoint_types,
    _output_modalities,
    _gateway_routes,
    _gateway_ports,
)
LATE: tuple[Rule, ...] = (
    _refused_in_files,
    _worker_type,
    _diffusion,
    _type_flags,
    _parser_conflicts,
    _remote_prefill_tokens,
    _gateways,
    _nodes,
    _kv_events,
    _tracing,
    _paths,
)


def check(rules: tuple[Rule, ...], given: Given) -> None:
    for rule in rules:
        rule(given)
