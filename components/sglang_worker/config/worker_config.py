"""The frozen result of parsing: all that the worker needs to know, nothing to re-derive."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Literal

import msgspec

from sglang_worker.system.descriptor import RouteDescriptor


class WorkerType(str, Enum):
    """DESIGN section 3; `workers.table` maps each to the module that serves it."""

    AGGREGATED = "aggregated"
    DECODE = "decode"
    PREFILL = "prefill"
    EMBEDDING = "embedding"
    MULTIMODAL_ENCODE = "multimodal_encode"
    NATIVE_MULTIMODAL = "native_multimodal"
    NATIVE_MULTIMODAL_PREFILL = "native_multimodal_prefill"
    NATIVE_MULTIMODAL_DECODE = "native_multimodal_decode"
    INTERNAL_MULTIMODAL = "internal_multimodal"
    INTERNAL_MULTIMODAL_DECODE = "internal_multimodal_decode"
    INTERNAL_MULTIMODAL_PREFILL = "internal_multimodal_prefill"
    IMAGE_DIFFUSION = "image_diffusion"
    VIDEO_GENERATION = "video_generation"
    LLM_DIFFUSION = "llm_diffusion"


class EndpointAddress(msgspec.Struct, frozen=True):
    namespace: str
    component: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.namespace}.{self.component}.{self.name}"

    def sibling(self, name: str) -> EndpointAddress:
        """Another endpoint of the same component, e.g. ``clear_kv_blocks``."""
        return EndpointAddress(self.namespace, self.component, name)


class RuntimeSettings(msgspec.Struct, frozen=True):
    """Planes of Dynamo's DistributedRuntime; accepted names are Dynamo's, case-sensitive."""

    discovery_backend: str = "etcd"
    request_plane: str = "tcp"
    response_plane: str = "tcp"
    event_plane: str | None = None


class ModelSettings(msgspec.Struct, frozen=True):
    """What the model card says besides what the engine itself knows."""

    served_model_names: tuple[str, ...] = ()
    endpoint_types: tuple[str, ...] = ("chat", "completions")
    tool_call_parser: str | None = None
    reasoning_parser: str | None = None
    default_thinking_mode: Literal["enabled", "disabled"] | None = None
    custom_jinja_template: str | None = None
    use_sglang_tokenizer: bool = False
    exclude_tools_when_tool_choice_none: bool = True
    frontend_decoding: bool = False


class LifecycleSettings(msgspec.Struct, frozen=True):
    routing_grace_s: float = 5.0
    shutdown_timeout_s: float = 25.0


class HealthSettings(msgspec.Struct, frozen=True):
    """When the engine counts as healthy (docs/health.md), and the runtime's canary."""

    answer_timeout_s: float = 10.0
    stall_timeout_s: float = 60.0
    canary: bool = False
    canary_wait_s: int = 10
    canary_timeout_s: int = 3


class SystemSettings(msgspec.Struct, frozen=True):
    """The public listener (``port`` None: no listener) and the runtime's own second port."""

    host: str = "0.0.0.0"
    port: int | None = None
    metadata_port: int = 0
    token_file: str | None = None
    routes: tuple[RouteDescriptor, ...] = ()
    body_limit_bytes: int = 1 << 20
    weights_body_limit_bytes: int = 64 << 20


class EngineFlags(msgspec.Struct, frozen=True):
    """SGLang's part of the command line, after the disaggregation file was merged in.

    ``argv`` is what SGLang's own parser accepts; ``explicit`` maps argparse destinations to the
    values that the operator set by flag, variable or file (defaults are absent).
    """

    argv: tuple[str, ...] = ()
    explicit: Mapping[str, Any] = {}


class WorkerConfig(msgspec.Struct, frozen=True):
    worker_type: WorkerType
    endpoint: EndpointAddress
    engine: EngineFlags
    runtime: RuntimeSettings = RuntimeSettings()
    model: ModelSettings = ModelSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    health: HealthSettings = HealthSettings()
    system: SystemSettings = SystemSettings()
    runner_report_strict: bool = True
    reference_platform: Literal["auto", "on", "off"] = "auto"
    gateway_workers: int = 1
    dump_config_to: str | None = None
    trace_level: int = 2
    # Dynamo's remaining runtime flags (``dynamo.common.configuration``), by destination.
    dynamo: Mapping[str, Any] = {}
    # Router flags for the model card, all of `WorkerRouterConfig`'s; empty: advertise nothing.
    router: Mapping[str, Any] = {}
    health_check_payload: Mapping[str, Any] | None = None
    embedding_transfer_mode: str = "nixl-write"
    # Variables that Dynamo's Rust runtime reads, as its flags resolved them.
    environment: Mapping[str, str] = {}
    # Sentences for the startup log: deprecations and settings that have no effect.
    notices: tuple[str, ...] = ()
