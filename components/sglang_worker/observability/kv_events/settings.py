"""``--kv-events-config``: SGLang's JSON, checked before a model is loaded.

Read in SGLang 0.5.23 ``sglang/srt/disaggregation/kv_events.py`` (``KVEventsConfig``): SGLang
ignores what it does not know and fails in the scheduler, late, on what it cannot bind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from sglang_worker.errors import ConfigError

FLAG = "--kv-events-config"
OFF, ZMQ = "null", "zmq"
HIGHEST_PORT = 65535
WILDCARDS = frozenset({"*", "0.0.0.0", "::"})
LOOPBACK = "127.0.0.1"
ROUTER_FORMAT = "dynamo"
"""Block hashes that tell adapters and cache salts apart, as the router's own hashes do."""


class TcpEndpoint(msgspec.Struct, frozen=True):
    """``tcp://host:port``; IPv6 hosts without their brackets."""

    host: str
    port: int

    def text(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    def reachable(self) -> TcpEndpoint:
        """Where a process of the same host connects: SGLang binds wildcards on IPv4 too."""
        return TcpEndpoint(LOOPBACK, self.port) if self.host in WILDCARDS else self


class KvEventSettings(msgspec.Struct, frozen=True):
    """What the relay needs of the JSON. The endpoint is the one of rank 0."""

    endpoint: TcpEndpoint
    topic: str = ""


def parse(text: str | None) -> KvEventSettings | None:
    """None when events are off. Raises ConfigError naming the field and what is accepted."""
    fields = _fields(text)
    publisher = fields.get("publisher", OFF)
    if publisher == OFF:
        return None
    if publisher != ZMQ:
        raise _refused("publisher", publisher, f'"{ZMQ}" or "{OFF}"')
    endpoint = _tcp(fields, "endpoint", "tcp://*:5557")
    if fields.get("replay_endpoint") is not None:
        _tcp(fields, "replay_endpoint", None)
    bind = fields.get("bind")
    if bind is not None and not isinstance(bind, bool):
        raise _refused("bind", bind, "true or false")
    if bind is False or (bind is None and not _binds(endpoint)):
        raise ConfigError(
            f"{FLAG}: with endpoint {endpoint.text()!r} SGLang would connect and nobody would "
            'listen; accepted: a wildcard host such as "tcp://*:5557", or any local address '
            'together with "bind": true'
        )
    topic = fields.get("topic", "")
    if not isinstance(topic, str):
        raise _refused("topic", topic, "a text")
    return KvEventSettings(endpoint, topic)


def check_ports(settings: KvEventSettings, ranks: int) -> None:
    """Rank r binds port + r. Raises ConfigError when the last one is no port."""
    last = settings.endpoint.port + ranks - 1
    if last > HIGHEST_PORT:
        raise ConfigError(
            f"{FLAG}: endpoint {settings.endpoint.text()!r} leaves no port for {ranks} "
            f"data-parallel ranks; accepted: at most port {HIGHEST_PORT + 1 - ranks}"
        )


def with_router_format(text: str) -> str:
    """The same JSON with the router's event format, unless the operator chose one.

    SGLang's own format gives a prompt the same block hashes under every LoRA adapter and cache
    salt, although its cache keeps them apart; releases without the field ignore it.
    """
    fields = _fields(text)
    return text if "format" in fields else json.dumps({**fields, "format": ROUTER_FORMAT})


def _fields(text: str | None) -> Mapping[str, Any]:
    if not text:
        return {}
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as failure:
        reason = " ".join(str(failure).split())
        raise ConfigError(f"{FLAG} is no JSON: {reason}") from None
    if not isinstance(fields, dict):
        raise ConfigError(f"{FLAG} must be a JSON object")
    return fields


def _binds(endpoint: TcpEndpoint) -> bool:
    """SGLang's rule when ``bind`` is unset: "::" anywhere, so every short IPv6 address, binds."""
    return endpoint.host in WILDCARDS or "::" in endpoint.host


def _tcp(fields: Mapping[str, Any], name: str, default: str | None) -> TcpEndpoint:
    value = fields.get(name, default)
    found = split_tcp(value) if isinstance(value, str) else None
    if found is None:
        raise _refused(name, value, f'"tcp://*:<port>" with a port from 1 to {HIGHEST_PORT}')
    return found


def split_tcp(text: str) -> TcpEndpoint | None:
    """None for what is no ``tcp://host:port``."""
    scheme, _, rest = text.partition("://")
    host, colon, port = rest.rpartition(":")
    if scheme != "tcp" or not colon or not host or not port.isascii() or not port.isdigit():
        return None
    if not 1 <= int(port) <= HIGHEST_PORT:
        return None
    return TcpEndpoint(host.strip("[]"), int(port))


def _refused(name: str, value: object, accepted: str) -> ConfigError:
    return ConfigError(f"{FLAG}: {name} {json.dumps(value)} is refused; accepted: {accepted}")
