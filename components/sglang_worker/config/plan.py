"""The plan that ``--check`` prints: what would start, and what cannot be known beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.config.model_facts import Unknown
from sglang_worker.config.model_rules import verify_backend
from sglang_worker.config.worker_config import WorkerConfig
from sglang_worker.redaction import redact, redact_arguments

AT_START = "decided when the engine starts, from the model and the device"


def unknown(reason: str) -> dict[str, str]:
    return msgspec.to_builtins(Unknown(reason=reason))


def base_plan(config: WorkerConfig) -> dict[str, Any]:
    """All that flags, variables and files decide; secrets redacted."""
    plan = {
        "worker_type": config.worker_type.value,
        "endpoint": f"dyn://{config.endpoint.path}",
        "runtime": msgspec.to_builtins(config.runtime),
        "model": {
            **msgspec.to_builtins(config.model),
            "path": config.engine.explicit.get("model_path"),
            "context_length": config.engine.explicit.get("context_length") or unknown(AT_START),
            "kv_block_size": config.engine.explicit.get("page_size") or unknown(AT_START),
        },
        "lifecycle": msgspec.to_builtins(config.lifecycle),
        "system": _system(config),
        "engine": {
            "arguments": redact_arguments(config.engine.argv),
            "explicit": builtin(config.engine.explicit),
        },
        "linear_attention": linear_attention(config.engine.explicit),
        "runner_report_strict": config.runner_report_strict,
        "reference_platform": {
            "setting": config.reference_platform,
            "active": config.reference_platform == "on"
            if config.reference_platform != "auto"
            else unknown("auto looks at the machine that runs the worker"),
        },
        "notices": list(config.notices),
    }
    cleaned: dict[str, Any] = redact(plan)
    return cleaned


def _system(config: WorkerConfig) -> dict[str, Any]:
    system = config.system
    if system.port is None:
        return {"listener": False, "reason": "DYN_SYSTEM_PORT is unset or -1"}
    free = unknown("a free port is picked when the worker starts")
    return {
        "listener": True,
        "host": system.host,
        "port": system.port or free,
        "metadata_port": system.metadata_port or free,
        "token_file": system.token_file,
    }


def linear_attention(explicit: Mapping[str, Any]) -> dict[str, Any]:
    """What the flags fix per phase; the rest is SGLang's choice per runner."""
    reason = "SGLang resolves it per runner, from the model and the device"
    base = explicit.get("linear_attn_backend")
    phases = {
        phase: explicit.get(f"linear_attn_{phase}_backend") or base or unknown(reason)
        for phase in ("decode", "prefill")
    }
    backend, _ = verify_backend(explicit)
    if explicit.get("linear_attn_verify_backend") is None and backend is not None:
        # Verify follows a flashinfer decode, and is triton otherwise.
        backend = "flashinfer" if backend == "flashinfer" else "triton"
    return {**phases, "verify": backend or unknown(reason)}


def builtin(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON-ready copy; what JSON does not know becomes its text."""
    return dict(msgspec.to_builtins(dict(values), enc_hook=str))
