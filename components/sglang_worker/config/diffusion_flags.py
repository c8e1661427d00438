"""SGLang's engine flags that also mean something to its image and video generator.

The generator has a parser of its own; the worker's command line is that of the text engine, and a
flag that would silently do nothing is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError

# Destination of the text engine -> argument of the generator.
PASSED_ON: Mapping[str, str] = {
    "model_path": "model_path",
    "revision": "revision",
    "trust_remote_code": "trust_remote_code",
    "tp_size": "tp_size",
    "dp_size": "dp_size",
    "base_gpu_id": "base_gpu_id",
    "dist_timeout": "dist_timeout",
    "nccl_port": "master_port",
    "log_level": "log_level",
    "enable_trace": "enable_trace",
    "otlp_traces_endpoint": "otlp_traces_endpoint",
    "attention_backend": "attention_backend",
}
# The generator's names of what the text engine also has.
ATTENTION: Mapping[str, str] = {"torch_native": "torch_sdpa", "fa3": "fa", "fa4": "fa"}
# Read by the worker itself.
USED_HERE = frozenset(
    {
        "served_model_name",
        "allowed_media_domains",
        "media_url_max_file_size_mb",
        "max_queued_requests",
        "enable_metrics",
        "disaggregation_mode",
    }
)
WORKER_TYPES: Mapping[WorkerType, str] = {
    WorkerType.IMAGE_DIFFUSION: "--image-diffusion-worker",
    WorkerType.VIDEO_GENERATION: "--video-generation-worker",
}
# Flags of the worker and of Dynamo, by destination, that are about text.
TEXT_ONLY: Mapping[str, str] = {
    "use_sglang_tokenizer": "--use-sglang-tokenizer",
    "frontend_decoding": "--frontend-decoding",
    "custom_jinja_template": "--custom-jinja-template",
    "dyn_tool_call_parser": "--dyn-tool-call-parser",
    "dyn_reasoning_parser": "--dyn-reasoning-parser",
    "dyn_default_thinking_mode": "--dyn-default-thinking-mode",
    "endpoint_types": "--endpoint-types",
}
MODALITY: Mapping[WorkerType, str] = {
    WorkerType.IMAGE_DIFFUSION: "image",
    WorkerType.VIDEO_GENERATION: "video",
}


def check_flags(
    worker_type: WorkerType,
    explicit: Mapping[str, Any],
    sources: Mapping[str, str],
    output_modalities: list[str] | None,
) -> None:
    """``sources``: how the operator set a flag of the worker or of Dynamo, by destination.

    Raises ConfigError naming both flags; other worker types pass.
    """
    ours = WORKER_TYPES.get(worker_type)
    if ours is None:
        return
    for dest in explicit:
        if dest not in PASSED_ON and dest not in USED_HERE:
            raise ConfigError(
                f"--{dest.replace('_', '-')} is refused with {ours}: SGLang's image and video "
                f"generator does not know it; accepted: {', '.join(accepted())}"
            )
    backend = explicit.get("attention_backend")
    if backend is not None and backend not in ATTENTION:
        raise ConfigError(
            f"--attention-backend {backend} is refused with {ours}; accepted: "
            f"{', '.join(sorted(ATTENTION))}"
        )
    for dest, flag in TEXT_ONLY.items():
        if dest in sources:
            raise ConfigError(
                f"{sources[dest] or flag} is refused with {ours}: it is about text models"
            )
    if "output_modalities" in sources and _words(output_modalities) != {MODALITY[worker_type]}:
        raise ConfigError(
            f"{sources['output_modalities']} is refused with {ours}, which makes "
            f"{MODALITY[worker_type]}s alone; accepted: {MODALITY[worker_type]}"
        )


def accepted() -> list[str]:
    return sorted("--" + dest.replace("_", "-") for dest in {*PASSED_ON, *USED_HERE})


def generator_arguments(explicit: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments of SGLang's diffusion ``ServerArgs``: one GPU per tensor-parallel rank
    of each replica."""
    arguments = {
        argument: explicit[dest]
        for dest, argument in PASSED_ON.items()
        if explicit.get(dest) is not None
    }
    if "attention_backend" in arguments:
        arguments["attention_backend"] = ATTENTION[arguments["attention_backend"]]
    tp_size, dp_size = int(arguments.get("tp_size") or 1), int(arguments.get("dp_size") or 1)
    arguments["num_gpus"] = tp_size * dp_size
    # An idle generator would otherwise poll, which takes a whole core.
    arguments["sleep_on_idle"] = True
    return arguments


def _words(modalities: list[str] | None) -> set[str]:
    return {word.lower() for word in modalities or ()}
