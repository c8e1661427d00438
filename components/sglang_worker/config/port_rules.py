"""SGLang's port flags: numbers that no socket takes end in a traceback of whatever opens them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sglang_worker.errors import ConfigError

HIGHEST = 65535
# Destinations of SGLang's flags whose value is a port, where it is opened or told to others.
PORTS = ("port", "nccl_port", "disaggregation_bootstrap_port", "engine_info_bootstrap_port")
ADDRESS_FLAG = "--dist-init-addr"


def check_ports(explicit: Mapping[str, Any]) -> None:
    """``explicit``: SGLang's values by argparse destination. Raises ConfigError."""
    for dest in PORTS:
        if (port := explicit.get(dest)) is not None and not 0 < port <= HIGHEST:
            flag = "--" + dest.replace("_", "-")
            raise ConfigError(f"{flag} {port} is refused; accepted: 1 to {HIGHEST}")
    if address := explicit.get("dist_init_addr"):
        _check_address(str(address))


def _check_address(address: str) -> None:
    host, colon, port = address.strip().rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) <= HIGHEST):
        raise ConfigError(
            f"{ADDRESS_FLAG} {address} is refused; accepted: HOST:PORT with a port from 1 to "
            f"{HIGHEST}, an IPv6 host in brackets"
        )
