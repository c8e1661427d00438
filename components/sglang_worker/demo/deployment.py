"""The demo's deployment as a table: which processes, with which flags, in which environment."""

from __future__ import annotations

import glob
import random
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sglang_worker.demo.processes import ChildSpec, DemoFailure

MODEL_NAME = "demo"
SPECULATION = (
    *("--speculative-algorithm", "NEXTN"),
    *("--speculative-num-steps", "2"),
    *("--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", "3"),
)
# SGLang adds up the acceptance length only when it logs a decode batch, by default every 40 steps:
# more than the demo's answers take.
REPORTING = ("--decode-log-interval", "4")
COMMANDS: dict[str, tuple[str, ...]] = {
    "frontend": (sys.executable, "-m", "dynamo.frontend"),
    "worker": (sys.executable, "-m", "dynamo.sglang"),
}
PLATFORM_VARIABLE = "DYN_SGL_REFERENCE_PLATFORM"

# The runtime reads DYN_SYSTEM_PORT as a signed 16-bit number.
# Below those that engines take for themselves (`config.free_ports`).
_PORTS = range(17000, 22000)
_ENVIRONMENT = {
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_REQUEST_PLANE": "tcp",
    "DYN_RESPONSE_PLANE": "tcp",
    "DYN_EVENT_PLANE": "zmq",
    # Unset, each plane binds the machine's first outside address.
    "DYN_TCP_RPC_HOST": "127.0.0.1",
    "DYN_TCP_RESPONSE_STREAM_HOST": "127.0.0.1",
    "DYN_EVENT_PLANE_HOST": "127.0.0.1",
    "DYN_SYSTEM_HOST": "127.0.0.1",
    # The demo has one frontend, which sees a withdrawal at once.
    "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": "0",
    "HF_HUB_OFFLINE": "1",
    "PYTHONUNBUFFERED": "1",
}
_DROPPED = ("DYN_", "SGLANG_")
_KEPT = (PLATFORM_VARIABLE, "DYN_LOG", "SGLANG_PLATFORM", "SGLANG_USE_CPU_ENGINE")


class Deployment(msgspec.Struct, frozen=True):
    """Where everything of one run lives."""

    model: Path
    discovery: Path
    http_port: int
    system_port: int


def frontend(deployment: Deployment, environ: Mapping[str, str]) -> ChildSpec:
    arguments = ("--http-host", "127.0.0.1", "--http-port", str(deployment.http_port))
    return ChildSpec(
        "frontend",
        (*COMMANDS["frontend"], *arguments, "--router-mode", "round-robin"),
        child_environment(deployment, environ),
    )


def worker(deployment: Deployment, environ: Mapping[str, str]) -> ChildSpec:
    arguments = ("--model-path", str(deployment.model), "--served-model-name", MODEL_NAME)
    port = {"DYN_SYSTEM_PORT": str(deployment.system_port)}
    return ChildSpec(
        "worker",
        (*COMMANDS["worker"], *arguments, *SPECULATION, *REPORTING),
        child_environment(deployment, environ) | port,
    )


def child_environment(deployment: Deployment, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without its Dynamo and SGLang settings, plus the demo's."""
    kept = {k: v for k, v in environ.items() if k in _KEPT or not k.startswith(_DROPPED)}
    kept |= _ENVIRONMENT | {"DYN_FILE_KV": str(deployment.discovery)}
    if not any(name in kept for name in _KEPT if name != "DYN_LOG") and not gpu_nodes():
        # Many plain machines have a display device; that is no reason to refuse the demo.
        kept[PLATFORM_VARIABLE] = "on"
    return kept


def gpu_nodes() -> list[str]:
    return [*glob.glob("/dev/nvidia*"), *glob.glob("/dev/kfd")]


def free_port(preferred: int | None = None) -> int:
    """Return ``preferred`` when it is free, else a free port below 32768."""
    candidates = [] if preferred is None else [preferred]
    candidates += random.sample(_PORTS, 50)
    for port in candidates:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise DemoFailure(f"found no free port between {_PORTS.start} and {_PORTS.stop}")
