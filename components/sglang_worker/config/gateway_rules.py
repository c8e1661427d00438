"""``--gateway-workers`` above 1: what it goes together with, and what is refused by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from sglang_worker.config.worker_config import WorkerType
from sglang_worker.errors import ConfigError
from sglang_worker.gateway.refusals import CONFIGURABLE
from sglang_worker.system.descriptor import RouteDescriptor

HIGHEST_METADATA_PORT = 32767
"""The runtime reads its port into 16 signed bits."""


class Refused(msgspec.Struct, frozen=True):
    """An SGLang flag and why a group of gateways does not take it. ``above``: numbers up to it are
    no wish at all."""

    dest: str
    why: str
    above: int | None = None

    def given(self, explicit: Mapping[str, Any]) -> bool:
        value = explicit.get(self.dest)
        return bool(value) if self.above is None else (value or 0) > self.above


_UNTESTED = "gateways in front of it were not tried"
REFUSED: tuple[Refused, ...] = (
    Refused("enable_lora", "adapters are loaded into one tokenizer process and unknown to others"),
    Refused("lora_paths", "adapters are loaded into one tokenizer process and unknown to others"),
    Refused(
        "enable_forward_pass_metrics",
        "the schedulers stamp forward passes with one instance, and there are several",
    ),
    Refused(
        "skip_tokenizer_init",
        "outputs would pass through the main process one by one instead of going to the gateways",
    ),
    Refused("enable_trace", "SGLang sets up no tracing in attached processes"),
    Refused("nnodes", _UNTESTED, above=1),
    Refused("dp_size", _UNTESTED, above=1),
    Refused("attn_dp_size", _UNTESTED, above=1),
    Refused("enable_dp_attention", _UNTESTED),
)


def check_gateways(
    count: int, name: str, worker_type: WorkerType, explicit: Mapping[str, Any]
) -> None:
    """``name``: how the operator set ``count``. Raises ConfigError."""
    tokenizers = explicit.get("tokenizer_worker_num") or 1
    if tokenizers != 1 and tokenizers != count:
        raise ConfigError(
            f"--tokenizer-worker-num={tokenizers} is refused: each gateway brings a tokenizer; "
            f"use --gateway-workers {tokenizers}"
        )
    if count <= 1:
        return
    if worker_type is not WorkerType.AGGREGATED:
        raise ConfigError(
            f"{name}={count} is refused for a worker of type {worker_type.value}; accepted for: "
            f"{WorkerType.AGGREGATED.value}"
        )
    for one in REFUSED:
        if one.given(explicit):
            raise ConfigError(
                f"--{one.dest.replace('_', '-')} is refused with {name}={count}: {one.why}"
            )


def check_gateway_routes(routes: Iterable[RouteDescriptor], name: str) -> None:
    """Configured routes call the main process's tokenizer, which none of the requests use."""
    for route in routes:
        if route.method not in CONFIGURABLE:
            raise ConfigError(
                f"--engine-route {route.text}: {route.method} is refused with {name} above 1; "
                f"accepted: {', '.join(sorted(CONFIGURABLE))}"
            )
