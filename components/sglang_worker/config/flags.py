"""The worker's own flags and variables as one table: parsing, help and docs are made from it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec


class Kind(str, Enum):
    SWITCH = "switch"  # --flag / --no-flag; variable: boolean words
    TEXT = "text"
    CHOICE = "choice"
    INTEGER = "integer"
    SECONDS = "seconds"
    FILE = "file"  # an existing, readable file
    HOST = "host"
    ROUTES = "routes"  # repeatable; variable: separated by whitespace


class OwnFlag(msgspec.Struct, frozen=True, kw_only=True):
    """``name`` None: only the variable exists; ``variable`` None: only the flag exists."""

    dest: str
    kind: Kind
    help: str
    name: str | None = None
    variable: str | None = None
    default: Any = None
    choices: tuple[str, ...] = ()
    aliases: Mapping[str, str] = {}  # other spellings of choices, lower case
    minimum: float | None = None
    maximum: float | None = None
    accepted: str = ""  # how the value is checked, in words, for errors and docs

    def source(self, from_variable: bool) -> str:
        return str(self.variable if from_variable else self.name)


def _switch(name: str, variable: str, help: str, *, default: bool = False) -> OwnFlag:
    dest = name.removeprefix("--").replace("-", "_")
    return OwnFlag(
        dest=dest,
        kind=Kind.SWITCH,
        name=name,
        variable=variable,
        default=default,
        help=help,
        accepted="1/true/on/yes or 0/false/off/no",
    )


_WORKER_SELECTION = (
    _switch("--embedding-worker", "DYN_SGL_EMBEDDING_WORKER", "serve text embeddings"),
    _switch(
        "--enable-multimodal", "DYN_SGL_ENABLE_MULTIMODAL", "allow multimodal inputs on this worker"
    ),
    _switch(
        "--dedicated-mm-encoder",
        "DYN_SGL_DEDICATED_MM_ENCODER",
        "this PD, P or D worker gets embeddings from a separate encode worker; "
        "needs --enable-multimodal and --disaggregation-mode pd, prefill or decode",
    ),
    _switch(
        "--frontend-decoding",
        "DYN_SGL_FRONTEND_DECODING",
        "media is decoded in the frontend and arrives as pixels; "
        "not on internal multimodal workers (--dedicated-mm-encoder)",
    ),
    _switch("--image-diffusion-worker", "DYN_SGL_IMAGE_DIFFUSION_WORKER", "generate images"),
    _switch("--video-generation-worker", "DYN_SGL_VIDEO_GENERATION_WORKER", "generate videos"),
    OwnFlag(
        dest="embedding_transfer_mode",
        kind=Kind.CHOICE,
        name="--embedding-transfer-mode",
        variable="DYN_SGL_EMBEDDING_TRANSFER_MODE",
        default="nixl-write",
        choices=("local", "nixl-write", "nixl-read"),
        help="how an encode worker hands embeddings over",
    ),
)

_ENGINE = (
    _switch(
        "--use-sglang-tokenizer",
        "DYN_SGL_USE_TOKENIZER",
        "deprecated: SGLang tokenizes; prefer --dyn-chat-processor sglang on the frontend",
    ),
    OwnFlag(
        dest="disagg_config",
        kind=Kind.FILE,
        name="--disagg-config",
        variable="DYN_SGL_DISAGG_CONFIG",
        help="YAML file with one section of SGLang flags per role; needs --disagg-config-key",
        accepted="an existing YAML file",
    ),
    OwnFlag(
        dest="disagg_config_key",
        kind=Kind.TEXT,
        name="--disagg-config-key",
        variable="DYN_SGL_DISAGG_CONFIG_KEY",
        help="the section of --disagg-config to use, for example prefill",
        accepted="a section of the file",
    ),
    OwnFlag(
        dest="sglang_trace_level",
        kind=Kind.INTEGER,
        name="--sglang-trace-level",
        variable="SGLANG_TRACE_LEVEL",
        default=2,
        minimum=1,
        maximum=4,
        help="SGLang's trace level when --enable-trace is given",
    ),
    OwnFlag(
        dest="gateway_workers",
        kind=Kind.INTEGER,
        name="--gateway-workers",
        variable="DYN_SGL_GATEWAY_WORKERS",
        default=1,
        minimum=1,
        maximum=64,
        help="processes that relay for one engine, each an instance of its own; aggregated "
        "workers only (docs/gateway-workers.md)",
        accepted="1 to 64",
    ),
    OwnFlag(
        dest="reference_platform",
        kind=Kind.CHOICE,
        variable="DYN_SGL_REFERENCE_PLATFORM",
        default="auto",
        choices=("auto", "on", "off"),
        aliases={
            **dict.fromkeys(("1", "true", "yes"), "on"),
            **dict.fromkeys(("0", "false", "no"), "off"),
        },
        help="pure-PyTorch CPU execution: auto uses it only where nothing hints at an accelerator",
    ),
    _switch(
        "--runner-report-strict",
        "DYN_SGL_RUNNER_REPORT_STRICT",
        "a failed runner check stops startup; with --no-runner-report-strict it only warns",
        default=True,
    ),
)

_SYSTEM = (
    OwnFlag(
        dest="engine_routes",
        kind=Kind.ROUTES,
        name="--engine-route",
        variable="DYN_SGLANG_ENGINE_ROUTES",
        default=(),
        help="expose one SGLang method under /engine/<path>; repeat the flag, "
        "or separate descriptors in the variable with whitespace (variable first)",
        accepted="<path>[=<method>][:engine|tm]",
    ),
    OwnFlag(
        dest="system_port",
        kind=Kind.INTEGER,
        variable="DYN_SYSTEM_PORT",
        default=-1,
        minimum=-1,
        maximum=65535,
        help="port of the system listener",
        accepted="-1 (no listener), 0 (a free port) or 1 to 65535",
    ),
    OwnFlag(
        dest="system_host",
        kind=Kind.HOST,
        variable="DYN_SYSTEM_HOST",
        default="0.0.0.0",
        help="address of the system listener",
        accepted="an IP address or a host name, without a port",
    ),
    OwnFlag(
        dest="system_token_file",
        kind=Kind.FILE,
        name="--system-token-file",
        variable="DYN_SYSTEM_TOKEN_FILE",
        help="bearer token that control and configuration routes then need",
        accepted="an existing, readable, non-empty file",
    ),
    OwnFlag(
        dest="metadata_port",
        kind=Kind.INTEGER,
        name="--metadata-port",
        variable="DYN_SGL_METADATA_PORT",
        default=0,
        minimum=0,
        maximum=32767,  # the runtime reads its port into 16 signed bits
        help="second port, where the runtime's own server answers frontends",
        accepted="0 (a free port) or 1 to 32767 (the runtime reads no more), "
        "and not DYN_SYSTEM_PORT",
    ),
    OwnFlag(
        dest="system_body_limit_bytes",
        kind=Kind.INTEGER,
        variable="DYN_SYSTEM_BODY_LIMIT_BYTES",
        default=1 << 20,
        minimum=1024,
        maximum=1 << 30,
        help="largest request body of an engine route; a larger one is answered 413",
        accepted="1024 to 1073741824",
    ),
    OwnFlag(
        dest="system_weights_body_limit_bytes",
        kind=Kind.INTEGER,
        variable="DYN_SYSTEM_WEIGHTS_BODY_LIMIT_BYTES",
        default=64 << 20,
        minimum=1024,
        maximum=1 << 30,
        help="the same for routes whose bodies carry weights",
        accepted="1024 to 1073741824",
    ),
)

_LIFECYCLE = (
    OwnFlag(
        dest="routing_grace_s",
        kind=Kind.SECONDS,
        variable="DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS",
        default=5.0,
        minimum=0,
        maximum=86400,
        help="how long admission stays open after discovery confirmed a withdrawal",
    ),
    OwnFlag(
        dest="shutdown_timeout_s",
        kind=Kind.SECONDS,
        name="--shutdown-timeout",
        variable="DYN_SGL_SHUTDOWN_TIMEOUT_S",
        default=25.0,
        minimum=0,
        maximum=86400,
        help="from SIGTERM until the last running request has ended or was handed to another "
        "worker, the routing grace included; the default fits Kubernetes' 30 s grace period",
    ),
)

_HEALTH = (
    OwnFlag(
        dest="health_answer_timeout_s",
        kind=Kind.SECONDS,
        name="--health-answer-timeout",
        variable="DYN_SGL_HEALTH_ANSWER_TIMEOUT_S",
        default=10.0,
        minimum=0.5,
        maximum=86400,
        help="an idle engine that leaves a health probe unanswered for this long is unhealthy",
    ),
    OwnFlag(
        dest="health_stall_timeout_s",
        kind=Kind.SECONDS,
        name="--health-stall-timeout",
        variable="DYN_SGL_HEALTH_STALL_TIMEOUT_S",
        default=60.0,
        minimum=0.5,
        maximum=86400,
        help="a busy engine is unhealthy once it has made no progress for this long; a single "
        "forward pass must fit",
    ),
    OwnFlag(
        dest="health_check_enabled",
        kind=Kind.SWITCH,
        variable="DYN_HEALTH_CHECK_ENABLED",
        default=False,
        help="the runtime sends probes too, as its canary; the worker watches its engine always",
        accepted="1/true/on/yes or 0/false/off/no",
    ),
    OwnFlag(
        dest="canary_wait_s",
        kind=Kind.INTEGER,
        variable="DYN_CANARY_WAIT_TIME",
        default=10,
        minimum=1,
        maximum=86400,
        help="seconds without an answer to anybody after which a probe is sent, by the worker and "
        "by the runtime's canary",
        accepted="1 to 86400",
    ),
    OwnFlag(
        dest="canary_timeout_s",
        kind=Kind.INTEGER,
        variable="DYN_HEALTH_CHECK_REQUEST_TIMEOUT",
        default=3,
        minimum=1,
        maximum=86400,
        help="seconds that the runtime's canary waits for the worker's verdict",
        accepted="1 to 86400",
    ),
)

OWN_FLAGS: tuple[OwnFlag, ...] = (*_WORKER_SELECTION, *_ENGINE, *_SYSTEM, *_LIFECYCLE, *_HEALTH)
GROUPS: tuple[tuple[str, tuple[OwnFlag, ...]], ...] = (
    ("Worker selection", _WORKER_SELECTION),
    ("Engine", _ENGINE),
    ("System listener", _SYSTEM),
    ("Lifecycle", _LIFECYCLE),
    ("Health", _HEALTH),
)
BY_DEST: dict[str, OwnFlag] = {flag.dest: flag for flag in OWN_FLAGS}
